"""The roofline share: how much of what the machine can do at most a step's unavoidable work reaches."""

from dataclasses import dataclass

from engine.execution.step_demand import StepDemand


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do at most with the threads of the engine, measured.

    Attributes:
        bfloat16_ops_per_s: what products in floats are held against; no format of floats is multiplied faster.
        instruction_set: whose peaks they are.
        bfloat16_instruction: what reaches the peak of bfloat16.
    """

    read_bytes_per_s: float
    integer_ops_per_s: float
    bfloat16_ops_per_s: float
    instruction_set: str
    bfloat16_instruction: str


@dataclass(frozen=True, slots=True)
class RooflineShare:
    """The shares of a step: of its time, what its bytes and its products of either kind take at the ceilings.

    A bandwidth over 1 means that caches held part of the bytes. Products of both kinds go one after another, so their
    shares add up.
    """

    bandwidth: float
    integer: float
    bfloat16: float

    @property
    def products(self) -> float:
        return self.integer + self.bfloat16

    @property
    def binding(self) -> str:
        if self.bandwidth >= self.products:
            return "bandwidth"
        return "integer peak" if self.integer >= self.bfloat16 else "bfloat16 peak"

    @property
    def value(self) -> float:
        return max(self.bandwidth, self.products)


def roofline_share(demand: StepDemand, seconds: float, ceilings: Ceilings) -> RooflineShare:
    """Return what a step that took `seconds` reached."""
    integer_operations = demand.operations - demand.float_operations
    return RooflineShare(
        bandwidth=demand.num_bytes / seconds / ceilings.read_bytes_per_s,
        integer=integer_operations / seconds / ceilings.integer_ops_per_s,
        bfloat16=demand.float_operations / seconds / ceilings.bfloat16_ops_per_s,
    )
