"""How the laboratory measures: batches in turn on a clock of the test's own, only what is right, in a process."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from engine.clock import ManualClock, SystemClock
from engine.kernels.kernel_inputs import SoftmaxInputs, softmax_inputs
from engine.kernels.lab.call_cost import measure_call_costs
from engine.kernels.lab.cases import Case
from engine.kernels.lab.correctness import check_all
from engine.kernels.lab.laboratory import run_laboratory
from engine.kernels.lab.process import Message, parse_line
from engine.kernels.lab.timing import MAX_CALLS, Effort, calls_for, sample_in_turn, time_case
from engine.kernels.numpy_kernels import NUMPY_KERNELS
from engine.kernels.prepared import PreparedKernel
from engine.kernels.registry import Backend

TINY = Effort(num_samples=2, batch_s=0.0, overhead_calls=10)


def test_samples_are_taken_in_turn_and_divided_by_the_calls() -> None:
    clock, order = ManualClock(), []

    def batch(name: str, seconds: list[float]):  # type: ignore[no-untyped-def]
        def run(count: int) -> None:
            order.append((name, count))
            clock.advance(count * seconds.pop(0))

        return run

    first, second = batch("a", [1.0, 3.0, 2.0]), batch("b", [10.0, 10.0, 40.0])
    spreads = sample_in_turn([first, second], [2, 4], num_samples=3, clock=clock)
    assert order == [("a", 2), ("b", 4)] * 3
    assert [(each.median, each.p25, each.p75, each.min) for each in spreads] == [(2, 1.5, 2.5, 1), (10, 10, 25, 10)]


@pytest.mark.parametrize(("call_s", "calls"), [(5e-3, 1), (1e-3, 2), (3e-4, 8), (1e-12, MAX_CALLS)])
def test_batch_is_long_enough_for_the_clock(call_s: float, calls: int) -> None:
    clock = ManualClock()
    assert calls_for(lambda count: clock.advance(count * call_s), batch_s=2e-3, clock=clock) == calls


def test_device_is_waited_for_once_a_batch() -> None:
    clock, waits = ManualClock(), []

    def make(given: SoftmaxInputs) -> PreparedKernel:
        return PreparedKernel(lambda: clock.advance(1e-3), lambda result: result, lambda: waits.append(clock.now()))

    case = Case("softmax", "decode", "[1, 4]", lambda: softmax_inputs(1, 4))
    effort = Effort(num_samples=3, batch_s=4e-3, overhead_calls=1)
    (timing,) = time_case(case, [Backend("x", kernels={"softmax": make})], effort=effort, clock=clock)
    assert (timing.calls_per_sample, timing.num_samples, timing.median_us) == (4, 3, pytest.approx(1000))
    assert len(waits) == 1 + 3 + 3  # warm-up, batches of 1, 2 and 4 while looking for the number, samples


def test_call_costs_cover_every_binding_argument_and_lock() -> None:
    functions = {
        f"{name}{suffix}": (lambda *arguments: 0)
        for name in ("empty_call", "take_pointers", "take_arrays")
        for suffix in ("", "_released")
    }
    backends = [Backend("numpy"), Backend("ctypes", functions=functions)]
    costs = measure_call_costs(backends, effort=TINY, clock=SystemClock())
    assert [(cost.binding, cost.arguments, cost.interpreter_lock) for cost in costs] == [
        ("loop", "none", "held"),
        ("python", "none", "held"),
        *(("ctypes", kind, lock) for kind in ("none", "pointers", "arrays") for lock in ("held", "released")),
    ]
    assert all(cost.p25_ns <= cost.median_ns <= cost.p75_ns for cost in costs)


def test_backend_that_is_not_available_is_not_checked() -> None:
    case = Case("softmax", "odd", "[2, 3]", lambda: softmax_inputs(2, 3))
    backends = [Backend("numpy", kernels=NUMPY_KERNELS), Backend("triton", state="unavailable", reason="no device")]
    assert [check.backend for check in check_all([case], backends)] == ["numpy"]


def test_wrong_kernel_is_reported_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(given: SoftmaxInputs) -> PreparedKernel:
        return PreparedKernel(lambda: np.ones_like(given.x), lambda result: result)

    right = Backend("numpy", kernels=NUMPY_KERNELS)
    spoiled = replace(right, name="spoiled", kernels={**NUMPY_KERNELS, "softmax": wrong})
    monkeypatch.setattr("engine.kernels.lab.laboratory.find_backends", lambda *_, **__: [right, spoiled])
    said: list[str] = []
    report = run_laboratory(said.append, effort=TINY, build=False, instruction_set="auto", clock=SystemClock())
    assert not report.ok
    assert {check.kernel for check in report.checks if not check.passed} == {"softmax"}
    timed = {(timing.backend, timing.kernel) for timing in report.timings}
    assert ("spoiled", "softmax") not in timed
    assert {("numpy", "softmax"), ("spoiled", "rope")} <= timed
    assert said[0] == "looking for backends"
    assert parse_line(msgspec.json.encode(Message(report=report))).report == report
