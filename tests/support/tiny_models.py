"""Small decoders of every family with seeded random weights, made by hand: no file, no loader."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.spec import DecoderSpec, RopeScaling
from engine.model.weights import Weights

_BASE = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_layers": 3,
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}

TINY_SPECS = {
    "llama": DecoderSpec(architecture="llama", **_BASE, tie_word_embeddings=True),
    "llama3": DecoderSpec(
        architecture="llama",
        **_BASE,
        rope_scaling=RopeScaling(kind="llama3", factor=8.0, original_max_positions=64),
        rope_theta=500000.0,
    ),
    "linear-rope": DecoderSpec(architecture="llama", **_BASE, rope_scaling=RopeScaling(kind="linear", factor=4.0)),
    "qwen2": DecoderSpec(architecture="qwen2", **_BASE, qkv_bias=True, norm_eps=1e-6, rope_theta=1e6),
    "qwen3": DecoderSpec(architecture="qwen3", **{**_BASE, "head_dim": 16}, qk_norm=True, tie_word_embeddings=True),
    "mha": DecoderSpec(architecture="llama", **{**_BASE, "num_kv_heads": 6}),
}


@dataclass(frozen=True)
class FloatTensor:
    """A weight that is float32 already."""

    name: str
    values: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def encoding(self) -> str:
        return "F32"

    @property
    def data(self) -> NDArray[np.uint8]:
        return np.atleast_2d(self.values).view(np.uint8)

    def to_float32(self) -> NDArray[np.float32]:
        return self.values.copy()


def tiny_weights(spec: DecoderSpec, *, seed: int = 0) -> Weights:
    """Return weights that keep activations near 1 and logits a few units apart."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in spec.weight_shapes().items():
        if "norm" in name:
            values = 1 + 0.1 * rng.standard_normal(shape)
        elif name == "embed.weight":
            values = rng.standard_normal(shape)
        elif name.endswith(".bias"):
            values = 0.3 * rng.standard_normal(shape)
        else:
            values = 1.5 * rng.standard_normal(shape) / np.sqrt(shape[-1])
        tensors[name] = FloatTensor(name=name, values=values.astype(np.float32))
    return Weights(tensors)
