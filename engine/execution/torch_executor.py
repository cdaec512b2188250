"""The torch executor: one ragged forward pass over every scheduled token, on a CPU or a CUDA device."""

import math

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)

from engine.config import DtypeName
from engine.errors import ConfigError
from engine.execution.attention_plan import AttentionGroup, plan_attention
from engine.execution.forward_batch import ForwardBatch
from engine.execution.paged_attention import KEY_ALIGNMENT, PagedAttention
from engine.execution.paged_cache import PagedKVCache
from engine.execution.torch_weights import LayerWeights, load_torch_weights
from engine.model.rope import inverse_frequencies
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchExecutor:
    """Run a decoder over a paged KV cache it owns.

    Prefill chunks and decodes share every matrix product; attention is batched over decodes of similar length and
    over prefill chunks of the same length. Models in half precision rotate in float32; norms, softmax and products
    accumulate in float32 and round to the model's dtype.

    Args:
        spec, weights: the model; the weights are dequantised to `dtype`.
        num_blocks, block_size: the KV pool.
        dtype: `auto` is float32 on CPUs and bfloat16 on CUDA devices.
        device: `auto` takes a CUDA device if there is one.
        threads: of torch in this process, on CPUs; 0 keeps torch's choice, one per physical core.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: Weights,
        *,
        num_blocks: int,
        block_size: int,
        dtype: DtypeName = "auto",
        device: str = "auto",
        threads: int = 0,
    ) -> None:
        self.device = _resolve_device(device)
        self.dtype = _resolve_dtype(dtype, self.device)
        if self.device.type == "cpu" and threads:
            torch.set_num_threads(threads)
        self._spec = spec
        with torch.inference_mode():
            self._weights = load_torch_weights(spec, weights, dtype=self.dtype, device=self.device)
            self._frequencies = torch.from_numpy(inverse_frequencies(spec)).to(self.device)
            self._cache = PagedKVCache(
                spec, num_blocks=num_blocks, block_size=block_size, dtype=self.dtype, device=self.device
            )
            self._attention = PagedAttention(
                self._cache, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads, head_dim=spec.head_dim
            )
        self._key_alignment = math.lcm(KEY_ALIGNMENT, block_size)

    @property
    def name(self) -> str:
        return "torch"

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def num_threads(self) -> int:
        return torch.get_num_threads()

    @property
    def kv_cache_bytes(self) -> int:
        return self._cache.num_bytes

    @torch.inference_mode()
    def execute(self, batch: ForwardBatch) -> torch.Tensor:
        """Return float32 [num_logits, vocab_size] on the executor's device; doesn't wait for the device."""
        if len(batch.block_copies):
            self._cache.copy_blocks(torch.from_numpy(batch.block_copies).to(self.device))
        spec, weights = self._spec, self._weights
        slots = torch.from_numpy(batch.slot_mapping).to(self.device)
        rotation = self._rotation(torch.from_numpy(batch.positions).to(self.device))
        groups = plan_attention(
            batch,
            num_kv_heads=spec.num_kv_heads,
            num_blocks=self._cache.num_blocks,
            block_size=self._cache.block_size,
            key_alignment=self._key_alignment,
            device=self.device,
        )
        hidden = F.embedding(torch.from_numpy(batch.token_ids).to(self.device), weights.embed)
        for index, layer in enumerate(weights.layers):
            hidden += self._attention_block(index, layer, hidden, slots, rotation, groups)
            hidden += self._mlp_block(layer, hidden)
        rows = hidden[torch.from_numpy(batch.logits_rows).to(self.device)]
        return weights.head(self._norm(rows, weights.final_norm)).float()

    def _attention_block(
        self,
        index: int,
        layer: LayerWeights,
        hidden: torch.Tensor,
        slots: torch.Tensor,
        rotation: torch.Tensor,
        groups: list[AttentionGroup],
    ) -> torch.Tensor:
        spec = self._spec
        heads = torch.unflatten(layer.qkv(self._norm(hidden, layer.attn_norm)), -1, (-1, spec.head_dim))
        turned, value = torch.split(heads, [spec.num_heads + spec.num_kv_heads, spec.num_kv_heads], dim=1)
        if layer.qk_norm is not None:
            turned = F.rms_norm(turned, (spec.head_dim,), None, spec.norm_eps) * layer.qk_norm
        query, key = torch.split(_rotate(turned, rotation), [spec.num_heads, spec.num_kv_heads], dim=1)
        self._cache.write(index, slots, key, value)
        return layer.o(self._attention(index, query, groups))

    def _mlp_block(self, layer: LayerWeights, hidden: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_up(self._norm(hidden, layer.mlp_norm)).chunk(2, dim=-1)
        return layer.down(F.silu(gate) * up)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self._spec.norm_eps)

    def _rotation(self, positions: torch.Tensor) -> torch.Tensor:
        """Return complex64 [num_tokens, 1, head_dim / 2]; angles are computed in float64."""
        angles = positions.to(torch.float64)[:, None] * self._frequencies
        return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)[:, None]


def _rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Turn neighbouring pairs of x [num_tokens, heads, head_dim] by the row's rotation, in float32."""
    pairs = torch.view_as_complex(torch.unflatten(x.float(), -1, (-1, 2)))
    return torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)


def _resolve_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"`device` must be auto, cpu or cuda[:index], got {device!r}") from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"`device` {device!r} was asked for, but torch {torch.__version__} sees no CUDA device")
    return resolved


def _resolve_dtype(dtype: DtypeName, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in _DTYPES:
        raise ConfigError(f"`dtype` of the torch executor must be one of auto, {', '.join(_DTYPES)}, got {dtype}")
    return _DTYPES[dtype]
