"""Correctness before speed: every available backend against the oracle in float64."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from engine.kernels.kernel_inputs import Inputs
from engine.kernels.lab.cases import TOLERANCE, Case
from engine.kernels.lab.report import Check
from engine.kernels.numpy_kernels import oracle
from engine.kernels.registry import Backend

EXACT, EIGHT_BITS = "float64", "float64, activations in 8 bits"


def check_all(cases: Iterable[Case], backends: Iterable[Backend]) -> Iterator[Check]:
    """Yield the check of every kernel of every backend on every shape."""
    available = [backend for backend in backends if backend.kernels]
    for case in cases:
        inputs = case.make()
        for backend in available:
            yield check(case, inputs, backend)


def check(case: Case, inputs: Inputs, backend: Backend) -> Check:
    """Run the kernel once and compare."""
    steps = backend.activation_steps(inputs)
    prepared = backend.kernels[case.kernel](inputs)
    result = prepared.to_numpy(prepared.run())
    absolute, relative = errors(result, oracle(inputs, activation_steps=steps))
    return Check(
        kernel=case.kernel,
        backend=backend.name,
        shape=case.shape,
        oracle=EIGHT_BITS if steps else EXACT,
        max_abs_error=absolute,
        max_rel_error=relative,
        tolerance=TOLERANCE,
        passed=relative is not None and relative <= TOLERANCE,
    )


def errors(result: NDArray[np.float32], expected: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Return the largest difference, and its share of the largest expected magnitude; None where it isn't finite.

    A result of another shape raises ValueError: it is no rounding error.
    """
    if result.shape != expected.shape:
        raise ValueError(f"a result of shape {result.shape}, expected {expected.shape}")
    absolute = float(np.abs(result - expected).max())
    if not np.isfinite(absolute):
        return None, None
    scale = float(np.abs(expected).max())
    return absolute, absolute / scale if scale else absolute
