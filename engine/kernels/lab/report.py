"""What the kernel laboratory found: the form of `pellucid kernels --json` and of `GET /kernels`."""

from dataclasses import dataclass

REPORT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what the numbers were taken.

    Attributes:
        machine: architecture and word size of the interpreter.
        num_cores: that the process may use.
        num_threads: of every backend on the CPU.
        niceness: of the measuring process; above 0 it gave way to others.
        load_average: of one minute when it began; null where the system doesn't tell.
        instruction_set: of the native kernels; "" without them.
        python, numpy, torch, compiler: versions; "" for a compiler that isn't there.
        measured_at: seconds since the Unix epoch.
        duration_s: of the whole measurement, builds included.
    """

    machine: str
    num_cores: int
    num_threads: int
    niceness: int
    load_average: float | None
    instruction_set: str
    python: str
    numpy: str
    torch: str
    compiler: str
    measured_at: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class BackendState:
    """One backend: what it computes here, or why it doesn't.

    Attributes:
        state: `available`; `unavailable`: something isn't there; `failed`: it should work and doesn't.
    """

    name: str
    state: str
    reason: str
    version: str
    device: str
    kernels: list[str]


@dataclass(frozen=True, slots=True)
class Check:
    """One kernel of one backend against the oracle in float64 on one shape.

    Attributes:
        shape: in words.
        oracle: what was computed in float64: the exact formula, or the one with activations rounded to 8 bits.
        max_abs_error: largest difference; null when the result isn't finite.
        max_rel_error: that over the oracle's largest magnitude.
        tolerance: of max_rel_error.
    """

    kernel: str
    backend: str
    shape: str
    oracle: str
    max_abs_error: float | None
    max_rel_error: float | None
    tolerance: float
    passed: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one kernel of one backend takes, in microseconds a call.

    Attributes:
        phase: `decode` or `prefill`.
        num_samples: batches; each backend's are taken in turn with the others'.
        calls_per_sample: calls of a batch, whose time is divided by their number.
        median_us, p25_us, p75_us, min_us: over the samples.
    """

    kernel: str
    backend: str
    phase: str
    shape: str
    num_samples: int
    calls_per_sample: int
    median_us: float
    p25_us: float
    p75_us: float
    min_us: float


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call into a C function that does nothing costs, in nanoseconds, the loop around it included.

    Attributes:
        binding: `ctypes`, `pybind11` or `nanobind`; `python` is an empty Python function, `loop` the bare loop.
        arguments: `none`, `pointers` (three addresses as integers, a size, a float) or `arrays` (the addresses as NumPy
            arrays whose type and layout are checked).
        interpreter_lock: `held` or `released` around the call.
    """

    binding: str
    arguments: str
    interpreter_lock: str
    num_samples: int
    calls_per_sample: int
    median_ns: float
    p25_ns: float
    p75_ns: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the laboratory found."""

    conditions: Conditions
    backends: list[BackendState]
    checks: list[Check]
    timings: list[Timing]
    call_costs: list[CallCost]
    version: int = REPORT_VERSION

    @property
    def ok(self) -> bool:
        """Whether every available backend agrees with the oracle and none failed to build."""
        return all(check.passed for check in self.checks) and all(b.state != "failed" for b in self.backends)
