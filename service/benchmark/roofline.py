"""The roofline share: how much of what the machine can do at most a step's unavoidable work reaches."""

from dataclasses import dataclass

from engine.execution.step_demand import StepDemand


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do at most with the threads of the engine, measured.

    Attributes:
        instruction_set: whose integer peak it is.
    """

    read_bytes_per_s: float
    integer_ops_per_s: float
    instruction_set: str


@dataclass(frozen=True, slots=True)
class RooflineShare:
    """Both shares of a step; the larger one is what binds it. Over 1 means that caches held part of the bytes."""

    bandwidth: float
    integer: float

    @property
    def binding(self) -> str:
        return "bandwidth" if self.bandwidth >= self.integer else "integer peak"

    @property
    def value(self) -> float:
        return max(self.bandwidth, self.integer)


def roofline_share(demand: StepDemand, seconds: float, ceilings: Ceilings) -> RooflineShare:
    """Return what a step that took `seconds` reached."""
    return RooflineShare(
        bandwidth=demand.num_bytes / seconds / ceilings.read_bytes_per_s,
        integer=demand.operations / seconds / ceilings.integer_ops_per_s,
    )
