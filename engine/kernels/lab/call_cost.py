"""What a call costs through each binding: C functions that do nothing, the same argument kinds and locks for all.

A single call takes about as long as reading the clock, so batches of calls are timed. The loops are written out for
each number of arguments, because unpacking a tuple into a call is another, slower way to call.
"""

from collections.abc import Callable, Iterable
from itertools import repeat

import numpy as np

from engine.clock import Clock
from engine.kernels.lab.report import CallCost
from engine.kernels.lab.timing import Batch, Effort, sample_in_turn
from engine.kernels.native_bindings import KernelFunctions
from engine.kernels.registry import Backend

WIDTH, EPSILON = 576, 1e-5
ARGUMENTS = {"none": "empty_call", "pointers": "take_pointers", "arrays": "take_arrays"}
LOCKS = {"held": "", "released": "_released"}


def measure_call_costs(backends: Iterable[Backend], *, effort: Effort, clock: Clock) -> list[CallCost]:
    """Return the cost of every (binding, arguments, lock); first the bare loop and an empty Python function."""
    names: list[tuple[str, str, str]] = [("loop", "none", "held"), ("python", "none", "held")]
    batches: list[Batch] = [_loop, _without_arguments(_empty)]
    for backend in backends:
        if backend.functions is None:
            continue
        for arguments in ARGUMENTS:
            for lock in LOCKS:
                names.append((backend.name, arguments, lock))
                batches.append(_batch(backend.functions, arguments, lock))
    for batch in batches:
        batch(effort.overhead_calls)  # warm: caches, the interpreter's specialisation
    calls = [effort.overhead_calls] * len(batches)
    spreads = sample_in_turn(batches, calls, num_samples=effort.num_samples, clock=clock)
    return [
        CallCost(
            *name,
            num_samples=effort.num_samples,
            calls_per_sample=effort.overhead_calls,
            median_ns=spread.median * 1e9,
            p25_ns=spread.p25 * 1e9,
            p75_ns=spread.p75 * 1e9,
        )
        for name, spread in zip(names, spreads, strict=True)
    ]


def _batch(functions: KernelFunctions, arguments: str, lock: str) -> Batch:
    function = functions[ARGUMENTS[arguments] + LOCKS[lock]]
    if arguments == "none":
        return _without_arguments(function)
    arrays = [np.ones(WIDTH, dtype=np.float32) for _ in range(3)]
    if arguments == "arrays":
        return _with_five(function, arrays[0], arrays[1], arrays[2])
    return _with_five(function, *(array.ctypes.data for array in arrays))


def _loop(count: int) -> None:
    for _ in repeat(None, count):
        pass


def _empty() -> None:
    pass


def _without_arguments(function: Callable[..., object]) -> Batch:
    def batch(count: int) -> None:
        for _ in repeat(None, count):
            function()

    return batch


def _with_five(function: Callable[..., object], x: object, weight: object, out: object) -> Batch:
    def batch(count: int) -> None:
        for _ in repeat(None, count):
            function(x, weight, WIDTH, EPSILON, out)

    return batch
