"""Seeded random models, for tests and laboratories: no file, no network, the same weights everywhere."""

import re
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelLoadError
from engine.model.file_tensor import FileTensor
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights

PREFIX: Final = "random:"

PRESETS: Final = {
    "tiny": DecoderSpec(
        architecture="llama",
        vocab_size=512,
        hidden_size=64,
        intermediate_size=160,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    ),
    "tiny-qwen2": DecoderSpec(
        architecture="qwen2",
        vocab_size=512,
        hidden_size=64,
        intermediate_size=160,
        num_layers=3,
        num_heads=4,
        num_kv_heads=1,
        head_dim=16,
        max_position_embeddings=2048,
        rope_theta=1e6,
        norm_eps=1e-6,
        qkv_bias=True,
        tie_word_embeddings=True,
    ),
    "tiny-qwen3": DecoderSpec(
        architecture="qwen3",
        vocab_size=512,
        hidden_size=64,
        intermediate_size=160,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        rope_theta=1e6,
        norm_eps=1e-6,
        qk_norm=True,
    ),
    "small": DecoderSpec(
        architecture="llama",
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=704,
        num_layers=6,
        num_heads=8,
        num_kv_heads=4,
        head_dim=32,
        max_position_embeddings=4096,
    ),
}


def parse_name(name: str) -> tuple[DecoderSpec, int]:
    """Read `random:<preset>` or `random:<preset>?seed=<n>`.

    Returns:
        The preset's spec and the seed (0 when the name gives none).

    Raises:
        ModelLoadError: another form, or a preset that isn't there.
    """
    match = re.fullmatch(re.escape(PREFIX) + r"(?P<preset>[^?]*)(?:\?seed=(?P<seed>\d{1,18}))?", name)
    if match is None:
        raise ModelLoadError(f"`model` must read random:<preset> or random:<preset>?seed=<number>, got {name!r}")
    spec = PRESETS.get(match["preset"])
    if spec is None:
        raise ModelLoadError(f"`model` names the unknown preset {match['preset']!r}; known are {', '.join(PRESETS)}")
    return spec, int(match["seed"] or 0)


def random_weights(spec: DecoderSpec, *, seed: int) -> Weights:
    """Draw every weight that the spec asks for, float32.

    Matrices are Gaussian with gain / sqrt(in_features). The gains make what the layers add outweigh the token's own
    embedding, so that a tied head doesn't answer each token with itself, and spread the logits to a standard deviation
    of about 4, so that greedy picks have margins far above rounding.
    Each tensor has a stream of its own, (seed, name): adding a tensor changes no other.
    """
    return Weights(
        {name: _tensor(name, shape, _draw(name, shape, seed=seed)) for name, shape in spec.weight_shapes().items()}
    )


def _draw(name: str, shape: tuple[int, ...], *, seed: int) -> NDArray[np.float32]:
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    noise = generator.standard_normal(shape, dtype=np.float32)
    kind = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if kind == "final_norm":
        return 4.0 + 0.4 * noise
    if kind.endswith("norm"):
        return 1.0 + 0.1 * noise
    if kind == "bias":
        return 0.5 * noise
    return noise * np.float32(_GAINS.get(kind, 1.0) / np.sqrt(shape[-1]))


def _tensor(name: str, shape: tuple[int, ...], values: NDArray[np.float32]) -> FileTensor:
    rows = np.ascontiguousarray(values, dtype="<f4").reshape(shape if len(shape) == 2 else (1, -1))
    return FileTensor(name=name, shape=shape, encoding="F32", stored=rows.view(np.uint8))


# q and k: sharper attention than an average over everything. o and down: see random_weights.
_GAINS: Final = {"q": 1.5, "k": 1.5, "o": 3.0, "down": 3.0}
