"""DecoderSpec out of GGUF metadata."""

from dataclasses import dataclass
from typing import Final

from engine.errors import ModelLoadError
from engine.model.gguf_header import GgufHeader
from engine.model.gguf_metadata import Metadata
from engine.model.spec import DecoderSpec, RopeScaling


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """What the architecture's name alone says.

    Attributes:
        interleaved_rope: Q and K rows are stored for rotary pairs (2i, 2i + 1) and not for halves (i, i + d/2).
        qkv_bias: True or False when the family fixes it, None when the file's tensors tell.
        qk_norm: Q and K heads are normed before the rotation.
    """

    interleaved_rope: bool
    qkv_bias: bool | None
    qk_norm: bool


FAMILIES: Final = {
    "llama": GgufFamily(interleaved_rope=True, qkv_bias=None, qk_norm=False),
    "qwen2": GgufFamily(interleaved_rope=False, qkv_bias=True, qk_norm=False),
    "qwen3": GgufFamily(interleaved_rope=False, qkv_bias=False, qk_norm=True),
}


def architecture_of(metadata: Metadata) -> str:
    """Return `general.architecture`.

    Raises:
        ModelLoadError: it is missing, or a family that no executor computes.
    """
    architecture = metadata.require_string("general.architecture")
    if architecture not in FAMILIES:
        raise ModelLoadError(
            f"`general.architecture` is {architecture[:60]!r}, which can't be run; known are {', '.join(FAMILIES)}"
        )
    return architecture


def read_spec(header: GgufHeader, rope_factors: tuple[float, ...]) -> DecoderSpec:
    """Build the spec of a file.

    Args:
        header: the file's.
        rope_factors: values of its `rope_freqs.weight`, empty when it has none.

    Raises:
        ModelLoadError: a key is missing, has the wrong type, or asks for something that no executor computes.
    """
    metadata = Metadata(header.metadata)
    arch = architecture_of(metadata)
    _refuse_what_is_not_computed(metadata, arch)
    num_layers = metadata.require_int(f"{arch}.block_count", low=1)
    if num_layers > len(header.tensors):
        raise ModelLoadError(
            f"`{arch}.block_count` says {num_layers} layers, but the file has {len(header.tensors)} tensors in all"
        )
    hidden_size = metadata.require_int(f"{arch}.embedding_length", low=1)
    num_heads = metadata.require_int(f"{arch}.attention.head_count", low=1)
    num_kv_heads = metadata.get_int(f"{arch}.attention.head_count_kv", low=1)
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelLoadError("tensor `token_embd.weight` is missing")
    family = FAMILIES[arch]
    return DecoderSpec(
        architecture=arch,
        vocab_size=embedding.shape[0],
        hidden_size=hidden_size,
        intermediate_size=metadata.require_int(f"{arch}.feed_forward_length", low=1),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        head_dim=_head_dim(metadata, arch, hidden_size=hidden_size, num_heads=num_heads),
        max_position_embeddings=_context_length(metadata, arch),
        rope_theta=_or(metadata.get_float(f"{arch}.rope.freq_base"), 10000.0),
        rope_scaling=_rope_scaling(metadata, arch, rope_factors),
        norm_eps=metadata.require_float(f"{arch}.attention.layer_norm_rms_epsilon"),
        qkv_bias="blk.0.attn_q.bias" in header.tensors if family.qkv_bias is None else family.qkv_bias,
        qk_norm=family.qk_norm,
        tie_word_embeddings="output.weight" not in header.tensors,
    )


def _head_dim(metadata: Metadata, arch: str, *, hidden_size: int, num_heads: int) -> int:
    head_dim = metadata.get_int(f"{arch}.attention.key_length", low=1)
    if head_dim is None:
        if hidden_size % num_heads:
            raise ModelLoadError(
                f"`{arch}.attention.head_count` ({num_heads}) doesn't divide `{arch}.embedding_length` ({hidden_size})"
            )
        head_dim = hidden_size // num_heads
    for key in (f"{arch}.attention.value_length", f"{arch}.rope.dimension_count"):
        found = metadata.get_int(key)
        if found is not None and found != head_dim:
            raise ModelLoadError(f"`{key}` must equal the head size ({head_dim}), found {found}")
    return head_dim


def _context_length(metadata: Metadata, arch: str) -> int:
    """Return the trained context, or the attention window when that is shorter: up to it, windowed = full attention."""
    context = metadata.require_int(f"{arch}.context_length", low=1)
    window = metadata.get_int(f"{arch}.attention.sliding_window")
    return min(context, window) if window else context


def _rope_scaling(metadata: Metadata, arch: str, rope_factors: tuple[float, ...]) -> RopeScaling | None:
    factor = metadata.get_float(f"{arch}.rope.scaling.factor")
    if factor is None:
        factor = metadata.get_float(f"{arch}.rope.scale_linear")
    kind = metadata.get_string(f"{arch}.rope.scaling.type")
    if kind not in (None, "none", "linear"):
        raise ModelLoadError(
            f"`{arch}.rope.scaling.type` is {kind[:60]!r}, which isn't computed; known are none, linear"
        )
    if kind == "none" or not factor:
        factor = 1.0
    if any(value != 1.0 for value in rope_factors):
        return RopeScaling(kind="per_frequency", factors=tuple(factor * value for value in rope_factors))
    return None if factor == 1.0 else RopeScaling(kind="linear", factor=factor)


def _refuse_what_is_not_computed(metadata: Metadata, arch: str) -> None:
    for key in ("expert_count", "expert_used_count"):
        if metadata.get_int(f"{arch}.{key}"):
            raise ModelLoadError(f"`{arch}.{key}` says a mixture of experts, which isn't computed")
    if metadata.get_bool(f"{arch}.attention.causal") is False:
        raise ModelLoadError(f"`{arch}.attention.causal` is false; only causal decoders are computed")
    for key in ("logit_scale", "residual_scale", "embedding_scale", "attention.scale", "attention.clamp_kqv"):
        if metadata.get_float(f"{arch}.{key}"):
            raise ModelLoadError(f"`{arch}.{key}` changes the computation in a way that isn't implemented")


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
