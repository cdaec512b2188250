"""What precision the KV cache gets on each executor, what is refused, and what a token takes."""

import pytest

from engine.config import EngineConfig, ExecutorName, KvDtypeName
from engine.errors import ConfigError
from engine.execution.kv_dtype import best_half, kv_bytes_per_token, resolve_kv_dtype
from tests.support.tiny_models import TINY_SPECS


def resolved(executor: ExecutorName, *, on_cpu: bool = True, **settings: str) -> str:
    return resolve_kv_dtype(EngineConfig(model="m", **settings), executor, on_cpu=on_cpu)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("executor", "settings", "expected"),
    [
        ("native", {}, "float16"),
        ("native", {"dtype": "float32"}, "float32"),
        ("native", {"dtype": "float32", "kv_dtype": "int8"}, "int8"),
        ("native", {"kv_dtype": "bfloat16"}, "bfloat16"),
        ("reference", {}, "float32"),
        ("torch", {}, "float32"),
        ("torch", {"dtype": "bfloat16"}, "bfloat16"),
        ("torch", {"dtype": "float16", "kv_dtype": "float16"}, "float16"),
    ],
)
def test_kv_dtype_on_cpu_is_what_the_executor_has(
    executor: ExecutorName, settings: dict[str, str], expected: str
) -> None:
    assert resolved(executor, **settings) == expected


def test_kv_dtype_auto_of_the_native_executor_is_the_half_its_kernels_multiply() -> None:
    halves = {name: best_half(name) for name in ("amx", "avx512_bf16", "avx512", None)}
    assert halves == {"amx": "bfloat16", "avx512_bf16": "bfloat16", "avx512": "float16", None: "float16"}
    auto, exact = EngineConfig(model="m"), EngineConfig(model="m", dtype="float32")
    assert resolve_kv_dtype(auto, "native", on_cpu=True, native_half="bfloat16") == "bfloat16"
    assert resolve_kv_dtype(exact, "native", on_cpu=True, native_half="bfloat16") == "float32"


def test_kv_dtype_of_torch_on_a_gpu_is_bfloat16_unless_asked() -> None:
    assert resolved("torch", on_cpu=False) == "bfloat16"
    assert resolved("torch", on_cpu=False, dtype="float32") == "float32"
    assert resolved("reference", on_cpu=False) == "float32"


@pytest.mark.parametrize(
    ("executor", "settings"),
    [
        ("torch", {"kv_dtype": "int8"}),
        ("torch", {"kv_dtype": "float16"}),
        ("torch", {"dtype": "bfloat16", "kv_dtype": "float32"}),
        ("reference", {"kv_dtype": "bfloat16"}),
    ],
)
def test_kv_dtype_an_executor_lacks_is_refused_in_one_line(executor: ExecutorName, settings: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=f"`kv_dtype` of the {executor} executor must be .*, got {settings['kv_dtype']}"
    ):
        resolved(executor, **settings)


@pytest.mark.parametrize(("kv_dtype", "value"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_kv_bytes_of_a_token_are_those_of_its_values(kv_dtype: KvDtypeName, value: int) -> None:
    spec = TINY_SPECS["llama"]
    assert kv_bytes_per_token(spec, kv_dtype) * 4 == spec.kv_bytes_per_token_fp32 * value


def test_kv_bytes_in_8_bits_include_the_scales() -> None:
    spec = TINY_SPECS["llama"]
    pairs = 2 * spec.num_layers * spec.num_kv_heads
    assert kv_bytes_per_token(spec, "int8") == pairs * (spec.head_dim + 4)
