"""The shapes: odd ones for correctness, and those of the default model for times."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from engine.kernels.kernel_inputs import (
    Inputs,
    attention_inputs,
    matmul_inputs,
    rms_norm_inputs,
    rope_inputs,
    softmax_inputs,
    swiglu_inputs,
)

# SmolLM2-135M: what one layer works on.
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 576, 1536, 9, 3, 64, 16
DECODE_KEYS, PREFILL_TOKENS = 512, 128
ENCODINGS = {"matmul_int8": "Q8_0", "matmul_int4": "Q4_1"}

# How far a float32 computation may be from the oracle, as a share of the oracle's largest magnitude.
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of one kernel.

    Attributes:
        phase: `decode` or `prefill` for the default model's shapes, `odd` for the others.
        shape: in words.
        make: makes the inputs.
    """

    kernel: str
    phase: str
    shape: str
    make: Callable[[], Inputs]


def odd_cases() -> Iterator[Case]:
    """Yield shapes that fill no vector, tile or block evenly."""
    for rows, width in ((1, 1), (1, 7), (3, 41), (5, 123), (2, 1000)):
        yield from _row_cases("odd", rows, width, width, (rows, width))
    for tokens, heads, head_dim in ((1, 1, 2), (3, 2, 10), (41, 5, 80)):
        yield _rope_case("odd", tokens, heads, head_dim)
    for rows, outputs, inputs in ((1, 1, 32), (7, 17, 64), (41, 123, 160)):
        yield from _matmul_cases("odd", rows, outputs, inputs)
    for queries, keys, heads, kv_heads, head_dim, block_size in (
        (1, 1, 1, 1, 2, 1), (1, 17, 4, 2, 24, 7), (5, 131, 6, 2, 80, 8), (41, 70, 5, 1, 16, 16),
    ):  # fmt: skip
        yield _attention_case("odd", queries, keys, heads, kv_heads, head_dim, block_size)


def model_cases() -> Iterator[Case]:
    """Yield what one layer of the default model computes: a decode of one sequence, and a prefill."""
    for phase, rows, keys, softmax_shape in (
        ("decode", 1, DECODE_KEYS, (HEADS, DECODE_KEYS)),
        ("prefill", PREFILL_TOKENS, PREFILL_TOKENS, (HEADS * PREFILL_TOKENS, PREFILL_TOKENS)),
    ):
        yield from _row_cases(phase, rows, HIDDEN, INTERMEDIATE, softmax_shape)
        yield _rope_case(phase, rows, HEADS + KV_HEADS, HEAD_DIM)
        yield from _matmul_cases(phase, rows, INTERMEDIATE, HIDDEN)
        yield _attention_case(phase, rows, keys, HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE)


def _row_cases(phase: str, rows: int, width: int, inner: int, scores: tuple[int, int]) -> Iterator[Case]:
    yield Case("rms_norm", phase, f"[{rows}, {width}]", partial(rms_norm_inputs, rows, width))
    yield Case("softmax", phase, f"[{scores[0]}, {scores[1]}]", partial(softmax_inputs, *scores))
    yield Case("swiglu", phase, f"[{rows}, {inner}]", partial(swiglu_inputs, rows, inner))


def _rope_case(phase: str, tokens: int, heads: int, head_dim: int) -> Case:
    shape = f"{tokens} tokens, {heads} heads of {head_dim}"
    return Case("rope", phase, shape, partial(rope_inputs, tokens, heads, head_dim))


def _matmul_cases(phase: str, rows: int, outputs: int, inputs: int) -> Iterator[Case]:
    for kernel, encoding in ENCODINGS.items():
        shape = f"[{rows}, {inputs}] x [{outputs}, {inputs}] {encoding}"
        yield Case(kernel, phase, shape, partial(matmul_inputs, rows, outputs, inputs, encoding=encoding))


def _attention_case(
    phase: str, queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, block_size: int
) -> Case:
    shape = f"{queries} queries, {keys} keys, {heads} heads of {head_dim}, {kv_heads} KV heads, blocks of {block_size}"
    make = partial(
        attention_inputs, queries, keys, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim,
        block_size=block_size,
    )  # fmt: skip
    return Case("paged_attention", phase, shape, make)
