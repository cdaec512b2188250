"""The precision of the KV cache: what each executor offers, what `auto` means, and what a token takes."""

from engine.config import EngineConfig, ExecutorName, KvDtypeName
from engine.errors import ConfigError
from engine.model.spec import DecoderSpec

_VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
_SCALE_BYTES = 4  # int8: one scale for each token, head, and of keys and values


def resolve_kv_dtype(
    config: EngineConfig, executor: ExecutorName, *, on_cpu: bool, native_half: KvDtypeName = "float16"
) -> KvDtypeName:
    """Return the precision in which `executor` (never `auto`) will keep keys and values; never `auto`.

    `native_half` is what the native executor's kernels do best with on this machine; see `best_half`.

    Raises:
        ConfigError: the executor doesn't have the configured one.
    """
    if executor == "native":
        if config.kv_dtype != "auto":
            return config.kv_dtype
        return "float32" if config.dtype == "float32" else native_half
    own = config.dtype
    if own == "auto":
        own = "float32" if on_cpu or executor == "reference" else "bfloat16"
    if config.kv_dtype not in ("auto", own):
        raise ConfigError(
            f"`kv_dtype` of the {executor} executor must be that of its computation, {own}, got {config.kv_dtype}"
        )
    return own


def best_half(instruction_set: str | None) -> KvDtypeName:
    """Return bfloat16 where kernels multiply it as it lies; elsewhere float16, which is more exact."""
    return "bfloat16" if instruction_set in ("amx", "avx512_bf16") else "float16"


def kv_bytes_per_token(spec: DecoderSpec, kv_dtype: KvDtypeName) -> int:
    """Return the bytes of keys and values of one token in all layers; `kv_dtype` is not `auto`."""
    scales = _SCALE_BYTES if kv_dtype == "int8" else 0
    return 2 * spec.num_layers * spec.num_kv_heads * (spec.head_dim * _VALUE_BYTES[kv_dtype] + scales)
