"""The equivalence suite once more on the native executor, where the largest allowed difference is none at all.

Every precision (float32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, K-quants, the default file's mixture, and files multiplied
in bfloat16), every precision of the KV cache and every instruction set of this machine.
"""

from collections.abc import Callable, Iterator

import pytest

from engine.model.load import load_model
from tests.equivalence.conftest import DIFFERENCES, Subject
from tests.equivalence.test_torch_executor import (
    run,
    test_batched_equals_sequential,
    test_cached_equals_uncached,
    test_chunked_equals_one_shot,
    test_n_forks_equal_n_single_runs,
    test_preempted_equals_never_preempted,
    workload,
)
from tests.support.native import ALL_INSTRUCTION_SETS, PACKABLE_SPEC, native_executor, packable_spec, quantized_weights
from tests.support.tiny_models import TINY_SPECS, tiny_weights

__all__ = [
    "test_batched_equals_sequential",
    "test_cached_equals_uncached",
    "test_chunked_equals_one_shot",
    "test_n_forks_equal_n_single_runs",
    "test_preempted_equals_never_preempted",
]

DEFAULT_MODEL = "smollm2-135m-instruct"
KV = ", KV in "
WIDE_BLOCKS = ", blocks of 16"  # with heads of 64, what attention in tiles asks for
PRECISIONS = (
    *(f"{family} float32" for family in TINY_SPECS), "F16", "BF16", "Q4_0", "Q4_1", "Q8_0",
    "Q5_0", "Q4_K", "Q5_K", "Q6_K",
    *(f"Q8_0{KV}{kv_dtype}" for kv_dtype in ("bfloat16", "float16", "int8")),
    f"Q4_K{KV}bfloat16{WIDE_BLOCKS}",
)  # fmt: skip
IN_TILES = ("Q4_0 in bfloat16", "Q4_1 in bfloat16", "Q8_0 in bfloat16")  # by AMX alone


def make_subject(precision: str, instruction_set: str, *, threads: int) -> Subject:
    name = f"native {instruction_set}, {precision}"
    precision, _, kv_dtype = precision.partition(KV)
    block_size = 16 if kv_dtype.endswith(WIDE_BLOCKS) else 4
    kv_dtype = kv_dtype.removesuffix(WIDE_BLOCKS)
    bfloat16 = precision.endswith(" in bfloat16")
    precision = precision.removesuffix(" in bfloat16")
    settings = {
        "instruction_set": instruction_set, "threads": threads, "kv_dtype": kv_dtype or "float32", "bfloat16": bfloat16,
    }  # fmt: skip
    if precision.startswith(DEFAULT_MODEL):
        model = load_model(DEFAULT_MODEL)
        exact = precision.endswith("float32")
        executor = native_executor(model.spec, model.weights, num_blocks=64, block_size=16, exact=exact, **settings)
        return Subject(name, executor, model.spec.vocab_size, 16, 64, prompt_blocks=(1,))
    family = precision.removesuffix(" float32")
    spec = TINY_SPECS.get(family, packable_spec(precision))
    weights = tiny_weights(spec) if family in TINY_SPECS else quantized_weights(spec, precision)
    executor = native_executor(spec, weights, num_blocks=1024 // block_size, block_size=block_size, **settings)
    prompt_blocks = (1, 3) if block_size == 4 else (1,)
    return Subject(name, executor, spec.vocab_size, block_size, 1024 // block_size, prompt_blocks)


@pytest.fixture(
    scope="module",
    params=[
        *((precision, name) for precision in PRECISIONS for name in ALL_INSTRUCTION_SETS),
        *((precision, "amx") for precision in IN_TILES),
        pytest.param((f"{DEFAULT_MODEL} file in bfloat16{KV}bfloat16", "amx"), marks=pytest.mark.model),
        *(
            pytest.param((f"{DEFAULT_MODEL} file{KV}{kv_dtype}", "auto"), marks=pytest.mark.model)
            for kv_dtype in ("float16", "bfloat16")
        ),
        pytest.param((f"{DEFAULT_MODEL} float32", "auto"), marks=[pytest.mark.model, pytest.mark.slow]),
    ],
    ids=" ".join,
)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    subject = make_subject(*request.param, threads=1)
    yield subject
    subject.executor.close()


@pytest.fixture
def check_difference(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    def check(equivalence: str, difference: float) -> None:
        seen = request.config.stash.setdefault(DIFFERENCES, {})
        seen[equivalence] = max(difference, seen.get(equivalence, 0.0))
        assert difference == 0.0

    return check


@pytest.mark.parametrize(
    ("precision", "instruction_set"),
    [
        *(
            (precision, "auto")
            for precision in (
                "llama float32", "BF16", "Q4_1", "Q8_0", f"Q8_0{KV}float16", f"Q8_0{KV}int8",
                f"Q4_K{KV}bfloat16{WIDE_BLOCKS}",
            )
        ),
        ("Q4_1 in bfloat16", "amx"),
    ],
)  # fmt: skip
def test_one_thread_equals_several(
    precision: str, instruction_set: str, check_difference: Callable[[str, float], None]
) -> None:
    runs = []
    for threads in (1, 2, 3):
        subject = make_subject(precision, instruction_set, threads=threads)
        runs.append(run(subject, workload(subject, [1, 5, 30, 7, 61], 4)))
        subject.executor.close()
    for several in runs[1:]:
        assert several.tokens == runs[0].tokens
        check_difference(
            f"several threads = one, native {instruction_set}, {precision}", several.largest_difference(runs[0])
        )


@pytest.mark.parametrize("block_size", [1, 7, 16])
def test_pool_size_and_place_of_blocks_do_not_show(
    block_size: int, check_difference: Callable[[str, float], None]
) -> None:
    runs = []
    for num_blocks in (120, 400):
        weights = quantized_weights(PACKABLE_SPEC, "Q4_1")
        executor = native_executor(PACKABLE_SPEC, weights, num_blocks=num_blocks, block_size=block_size)
        subject = Subject("", executor, PACKABLE_SPEC.vocab_size, block_size, num_blocks, (1,))
        first = [workload(subject, [9], 2)] if num_blocks == 400 else []
        runs.append(run(subject, *first, workload(subject, [20, 33], 4)[1:]))
        executor.close()
    places = runs[0].logits.keys()
    difference = max(float((runs[0].logits[place] - runs[1].logits[place]).abs().max()) for place in places)
    check_difference(f"any pool, block size {block_size}", difference)
