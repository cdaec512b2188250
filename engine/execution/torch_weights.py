"""Canonical weights turned into what the torch executor multiplies with: fused, on the device, in its dtype."""

from dataclasses import dataclass

import numpy as np
import torch

from engine.execution.linear import Linear, make_linear
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer.

    Attributes:
        attn_norm, mlp_norm: [hidden_size].
        qkv: hidden_size -> (num_heads + 2 * num_kv_heads) * head_dim: all Q heads, then K, then V. Within a Q or K
            head the rotary pairs (i, i + head_dim / 2) are made neighbours, so that rotation is a complex product;
            scores don't change when Q and K are permuted alike.
        qk_norm: [num_heads + num_kv_heads, head_dim] in the same order, or None.
        o, down: back to hidden_size. gate_up: hidden_size -> 2 * intermediate_size, gate first.
    """

    attn_norm: torch.Tensor
    mlp_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    o: Linear
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class TorchWeights:
    """A whole model. `embed` stays a plain matrix for row look-ups; `head` is the same one again when tied."""

    embed: torch.Tensor
    head: Linear
    final_norm: torch.Tensor
    layers: tuple[LayerWeights, ...]


class _Loader:
    def __init__(self, spec: DecoderSpec, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self._spec = spec
        self._weights = weights
        self._dtype = dtype
        self._device = device
        half = spec.head_dim // 2
        self._pairs = np.arange(spec.head_dim).reshape(2, half).T.ravel()  # 0, half, 1, half + 1, ...

    def tensor(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self._weights[name].to_float32()).to(self._device, self._dtype)

    def layer(self, index: int) -> LayerWeights:
        name = f"layers.{index}"
        spec = self._spec
        qkv_bias = self._qkv(f"{name}.%s.bias") if spec.qkv_bias else None
        gate_up = torch.cat((self.tensor(f"{name}.gate.weight"), self.tensor(f"{name}.up.weight")))
        return LayerWeights(
            attn_norm=self.tensor(f"{name}.attn_norm.weight"),
            mlp_norm=self.tensor(f"{name}.mlp_norm.weight"),
            qkv=make_linear(self._qkv(f"{name}.%s.weight"), qkv_bias),
            qk_norm=self._qk_norm(name) if spec.qk_norm else None,
            o=make_linear(self.tensor(f"{name}.o.weight")),
            gate_up=make_linear(gate_up),
            down=make_linear(self.tensor(f"{name}.down.weight")),
        )

    def _qkv(self, pattern: str) -> torch.Tensor:
        parts = [self.tensor(pattern % which) for which in "qkv"]
        for i in (0, 1):
            heads = torch.unflatten(parts[i], 0, (-1, self._spec.head_dim))
            parts[i] = heads[:, self._pairs].flatten(0, 1)
        return torch.cat(parts)

    def _qk_norm(self, name: str) -> torch.Tensor:
        query = self.tensor(f"{name}.q_norm.weight")[self._pairs].expand(self._spec.num_heads, -1)
        key = self.tensor(f"{name}.k_norm.weight")[self._pairs].expand(self._spec.num_kv_heads, -1)
        return torch.cat((query, key))


def load_torch_weights(
    spec: DecoderSpec, weights: Weights, *, dtype: torch.dtype, device: torch.device
) -> TorchWeights:
    """Dequantise, fuse and place every weight; one layer at a time, so that little exists twice."""
    loader = _Loader(spec, weights, dtype, device)
    embed = loader.tensor("embed.weight")
    return TorchWeights(
        embed=embed,
        head=make_linear(embed if spec.tie_word_embeddings else loader.tensor("head.weight")),
        final_norm=loader.tensor("final_norm.weight"),
        layers=tuple(loader.layer(i) for i in range(spec.num_layers)),
    )
