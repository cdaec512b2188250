"""Times taken in batches, so that reading the clock doesn't show, and in turn, so that drift hits all alike."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from engine.clock import Clock
from engine.kernels.kernel_inputs import Inputs
from engine.kernels.lab.cases import Case
from engine.kernels.lab.report import Timing
from engine.kernels.registry import Backend

MAX_CALLS = 10_000

# Runs a batch of so many calls.
Batch = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How thoroughly to measure.

    Attributes:
        num_samples: batches of each thing measured.
        batch_s: least duration of a batch of kernels, in seconds.
        overhead_calls: calls in a batch of empty ones.
    """

    num_samples: int
    batch_s: float
    overhead_calls: int


THOROUGH = Effort(num_samples=15, batch_s=2e-3, overhead_calls=10_000)
QUICK = Effort(num_samples=7, batch_s=5e-4, overhead_calls=10_000)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the samples, in seconds a call."""

    median: float
    p25: float
    p75: float
    min: float


def sample_in_turn(batches: Sequence[Batch], calls: Sequence[int], *, num_samples: int, clock: Clock) -> list[Spread]:
    """Time num_samples batches of each, one of each after the other; return what a call of each takes."""
    taken = np.empty((num_samples, len(batches)))
    with _no_garbage_collection():
        for sample in range(num_samples):
            for place, (batch, count) in enumerate(zip(batches, calls, strict=True)):
                started = clock.now()
                batch(count)
                taken[sample, place] = (clock.now() - started) / count
    p25, median, p75 = np.quantile(taken, (0.25, 0.5, 0.75), axis=0)
    return [
        Spread(float(median[i]), float(p25[i]), float(p75[i]), float(taken[:, i].min())) for i in range(len(batches))
    ]


def calls_for(batch: Batch, *, batch_s: float, clock: Clock) -> int:
    """Return how many calls, a power of two or MAX_CALLS, take at least batch_s; the first call warms up."""
    batch(1)
    calls = 1
    while calls < MAX_CALLS:
        started = clock.now()
        batch(calls)
        if clock.now() - started >= batch_s:
            break
        calls *= 2
    return min(calls, MAX_CALLS)


def time_case(case: Case, backends: Sequence[Backend], *, effort: Effort, clock: Clock) -> Iterator[Timing]:
    """Yield the time of each available backend's kernel on one shape."""
    inputs = case.make()
    available = [backend for backend in backends if backend.kernels]
    batches = [_batch_of(backend, case.kernel, inputs) for backend in available]
    calls = [calls_for(batch, batch_s=effort.batch_s, clock=clock) for batch in batches]
    spreads = sample_in_turn(batches, calls, num_samples=effort.num_samples, clock=clock)
    for backend, count, spread in zip(available, calls, spreads, strict=True):
        yield Timing(
            kernel=case.kernel,
            backend=backend.name,
            phase=case.phase,
            shape=case.shape,
            num_samples=effort.num_samples,
            calls_per_sample=count,
            median_us=spread.median * 1e6,
            p25_us=spread.p25 * 1e6,
            p75_us=spread.p75 * 1e6,
            min_us=spread.min * 1e6,
        )


def _batch_of(backend: Backend, kernel: str, inputs: Inputs) -> Batch:
    prepared = backend.kernels[kernel](inputs)
    run, synchronize = prepared.run, prepared.synchronize

    def batch(count: int) -> None:
        for _ in repeat(None, count):
            run()
        synchronize()

    return batch


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
