"""DecoderSpec out of a Hugging Face config.json."""

from dataclasses import dataclass
from typing import Final

from engine.errors import ModelLoadError
from engine.model.json_file import JsonFile
from engine.model.spec import DecoderSpec, RopeScaling


@dataclass(frozen=True, slots=True)
class HfFamily:
    """What the class name in `architectures` alone says.

    Attributes:
        architecture: the spec's family name.
        qkv_bias, qk_norm: see DecoderSpec.
        window_by_default: a `sliding_window` holds without `use_sliding_window`.
    """

    architecture: str
    qkv_bias: bool = False
    qk_norm: bool = False
    window_by_default: bool = False


FAMILIES: Final = {
    "LlamaForCausalLM": HfFamily("llama"),
    "MistralForCausalLM": HfFamily("llama", window_by_default=True),
    "Qwen2ForCausalLM": HfFamily("qwen2", qkv_bias=True),
    "Qwen3ForCausalLM": HfFamily("qwen3", qk_norm=True),
}


def read_spec(config: JsonFile) -> DecoderSpec:
    """Build the spec.

    Raises:
        ModelLoadError: a field is missing, has the wrong type, or asks for something that no executor computes.
    """
    family = _family(config)
    _refuse_what_is_not_computed(config)
    hidden_size = config.require_int("hidden_size")
    num_heads = config.require_int("num_attention_heads")
    head_dim = config.get_int("head_dim", low=1)
    if head_dim is None:
        if hidden_size % num_heads:
            raise ModelLoadError(
                f"config.json: `num_attention_heads` ({num_heads}) doesn't divide `hidden_size` ({hidden_size})"
            )
        head_dim = hidden_size // num_heads
    num_kv_heads = config.get_int("num_key_value_heads", low=1)
    rope = _rope(config)
    return DecoderSpec(
        architecture=family.architecture,
        vocab_size=config.require_int("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.require_int("intermediate_size"),
        num_layers=config.require_int("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=_context_length(config, family),
        rope_theta=_rope_theta(config, rope),
        rope_scaling=_rope_scaling(rope),
        norm_eps=config.require_float("rms_norm_eps"),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        tie_word_embeddings=config.get_bool("tie_word_embeddings") or False,
    )


def _family(config: JsonFile) -> HfFamily:
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else architectures
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise ModelLoadError(
            f"config.json: `architectures` is {str(name)[:60]!r}, which can't be run; known are {', '.join(FAMILIES)}"
        )
    return family


def _refuse_what_is_not_computed(config: JsonFile) -> None:
    if config.get("quantization_config") is not None:
        raise ModelLoadError("config.json: `quantization_config` is present; only float safetensors can be read")
    if (activation := config.get_string("hidden_act")) not in (None, "silu"):
        raise ModelLoadError(f"config.json: `hidden_act` must be silu, found {activation[:60]!r}")
    for key in ("attention_bias", "mlp_bias"):
        if config.get_bool(key):
            raise ModelLoadError(f"config.json: `{key}` is true, which isn't computed")
    if config.get_float("partial_rotary_factor") not in (None, 1.0):
        raise ModelLoadError("config.json: `partial_rotary_factor` must be 1")


def _context_length(config: JsonFile, family: HfFamily) -> int:
    """Return the trained context, or the attention window when that is shorter: up to it, windowed = full attention."""
    context = config.require_int("max_position_embeddings")
    window = config.get_int("sliding_window")
    used = family.window_by_default or config.get_bool("use_sliding_window")
    return min(context, window) if window and used else context


def _rope(config: JsonFile) -> JsonFile | None:
    """Return the rotary settings: `rope_parameters` in newer files, `rope_scaling` in older ones."""
    rope = config.get_object("rope_parameters")
    return config.get_object("rope_scaling") if rope is None else rope


def _rope_theta(config: JsonFile, rope: JsonFile | None) -> float:
    inside = None if rope is None else rope.get_float("rope_theta")
    theta = config.get_float("rope_theta") if inside is None else inside
    return 10000.0 if theta is None else theta


def _rope_scaling(rope: JsonFile | None) -> RopeScaling | None:
    if rope is None:
        return None
    if rope.get_float("partial_rotary_factor") not in (None, 1.0):
        raise ModelLoadError(f"{rope.label}: `partial_rotary_factor` must be 1")
    kind = rope.get_string("rope_type") or rope.get_string("type")
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=rope.require_float("factor"))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=rope.require_float("factor"),
            low_freq_factor=rope.require_float("low_freq_factor"),
            high_freq_factor=rope.require_float("high_freq_factor"),
            original_max_positions=rope.require_int("original_max_position_embeddings"),
        )
    found = None if kind is None else kind[:60]
    raise ModelLoadError(f"{rope.label}: `rope_type` is {found!r}, which isn't computed; known are linear, llama3")
