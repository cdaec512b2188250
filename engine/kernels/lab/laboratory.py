"""The whole laboratory: find the backends, check them, and only then time what is right."""

import importlib.metadata
import os
import platform
from dataclasses import replace

from engine.clock import Clock
from engine.kernels.lab.call_cost import measure_call_costs
from engine.kernels.lab.cases import Case, model_cases, odd_cases
from engine.kernels.lab.correctness import check_all
from engine.kernels.lab.report import BackendState, Check, Conditions, Report, Timing
from engine.kernels.lab.timing import Effort, time_case
from engine.kernels.registry import Backend, Say, find_backends
from engine.kernels.toolchain import find_toolchain, this_interpreter

NUM_THREADS = 1


def run_laboratory(say: Say, *, effort: Effort, build: bool, instruction_set: str, clock: Clock) -> Report:
    """Check and measure everything that is there; takes seconds, and a minute more where bindings must be built.

    The caller has limited the compute libraries of this process to NUM_THREADS threads.

    Args:
        say: told what is being done, in a few words.
        effort: how thoroughly to measure.
        build: compile the native backends that aren't there.
        instruction_set: of the native kernels.
        clock: what is measured with.
    """
    import torch

    torch.set_num_threads(NUM_THREADS)
    started, load = clock.now(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    say("looking for backends")
    backends = find_backends(say, build=build, instruction_set=instruction_set)
    cases = list(model_cases())
    say("checking the kernels against float64")
    checks = list(check_all([*odd_cases(), *cases], backends))
    right = [_only_right(backend, checks) for backend in backends]
    timings = _time_all(say, cases, right, effort=effort, clock=clock)
    say("measuring what a call costs")
    costs = measure_call_costs(backends, effort=effort, clock=clock)
    toolchain = find_toolchain()
    used = {backend.version.split(", ")[-1] for backend in backends if backend.functions is not None}
    conditions = Conditions(
        machine=str(this_interpreter()),
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        num_threads=NUM_THREADS,
        niceness=os.nice(0) if hasattr(os, "nice") else 0,
        load_average=load,
        instruction_set=used.pop() if used else "",
        python=platform.python_version(),
        numpy=importlib.metadata.version("numpy"),
        torch=str(torch.__version__),
        compiler=toolchain.version if toolchain else "",
        measured_at=clock.wall(),
        duration_s=clock.now() - started,
    )
    return Report(conditions, [_state(backend) for backend in backends], checks, timings, costs)


def _only_right(backend: Backend, checks: list[Check]) -> Backend:
    """Return the backend without the kernels that failed a check."""
    wrong = {check.kernel for check in checks if check.backend == backend.name and not check.passed}
    return replace(backend, kernels={name: make for name, make in backend.kernels.items() if name not in wrong})


def _time_all(say: Say, cases: list[Case], backends: list[Backend], *, effort: Effort, clock: Clock) -> list[Timing]:
    timings: list[Timing] = []
    for case in cases:
        say(f"timing {case.kernel}, {case.phase}")
        able = [backend for backend in backends if case.kernel in backend.kernels]
        timings += time_case(case, able, effort=effort, clock=clock)
    return timings


def _state(backend: Backend) -> BackendState:
    return BackendState(
        name=backend.name,
        state=backend.state,
        reason=backend.reason,
        version=backend.version,
        device=backend.device,
        kernels=list(backend.kernels),
    )
