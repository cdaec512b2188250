"""What a load consists of: everything that is decided before the first request is sent."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from loadtest.arrivals import Arrivals, Closed, Replay, Sweep
from loadtest.errors import PlanError
from loadtest.lengths import Fixed, Lengths
from loadtest.slo import Slos

Seconds = Annotated[float, Meta(ge=0, le=86_400 * 7)]


class SharedPrefix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of each prompt is the same text as in others.

    Attributes:
        share: of a prompt's tokens, from its beginning.
        groups: different beginnings, dealt out at random.
    """

    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    groups: Annotated[int, Meta(ge=1, le=10_000)] = 1


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load. Equal plans ask for the same lengths at the same moments with the same text.

    Attributes:
        arrivals: when requests are sent.
        prompt_tokens, output_tokens: lengths asked for; a replayed trace has its own. Prompts are text cut to about so
            many tokens; results say how long the server found them.
        shared_prefix: what prompts have in common.
        slos: what a good request is.
        seed: of everything drawn.
        duration_s, num_requests: sending ends after so many seconds or so many requests, whichever comes first; 0 sets
            no such end, and one must be set unless a trace is replayed. In a sweep they are those of each level.
        warm_up_s: requests planned in the first seconds are sent but not measured.
        drain_s: what still runs so long after sending has ended is given up and counts as failed.
        max_connections: requests that may be with the server at a time; others wait their turn, and the wait counts.
        ignore_eos: ask the server to go on to the length asked for; not known to every server.
        temperature: of sampling.
        stop_when_saturated: end early when requests in flight and times to first token both keep growing.
    """

    arrivals: Arrivals
    prompt_tokens: Lengths = Fixed(tokens=128)
    output_tokens: Lengths = Fixed(tokens=64)
    shared_prefix: SharedPrefix = SharedPrefix()
    slos: Slos = Slos()
    seed: int = 1
    duration_s: Seconds = 0.0
    num_requests: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    warm_up_s: Seconds = 0.0
    drain_s: Seconds = 30.0
    max_connections: Annotated[int, Meta(ge=1, le=20_000)] = 512
    ignore_eos: bool = True
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    stop_when_saturated: bool = False

    def __post_init__(self) -> None:
        if not self.duration_s and not self.num_requests and not isinstance(self.arrivals, Replay):
            raise ValueError("one of `duration_s` and `num_requests` must be greater than 0")
        if self.duration_s and self.warm_up_s >= self.duration_s:
            raise ValueError(f"`warm_up_s` must be less than `duration_s`, got {self.warm_up_s} and {self.duration_s}")
        most = _most_streams(self.arrivals)
        if most > self.max_connections:
            raise ValueError(f"`max_connections` must be at least the concurrency {most}, got {self.max_connections}")

    @property
    def is_open(self) -> bool:
        """Whether requests are sent at planned moments, whatever the server does."""
        return not isinstance(self.arrivals, Closed | Sweep)


def make_plan(content: Any) -> LoadPlan:
    """Return the plan of plain dicts, lists, numbers and strings; raises PlanError naming what is wrong and where."""
    try:
        return msgspec.convert(content, LoadPlan)
    except msgspec.ValidationError as error:
        raise PlanError(str(error)) from None


def checked(plan: LoadPlan) -> LoadPlan:
    """Return the plan when every field is within its bounds; raises PlanError."""
    return make_plan(msgspec.to_builtins(plan))


def _most_streams(arrivals: Arrivals) -> int:
    match arrivals:
        case Closed(concurrency=concurrency):
            return concurrency
        case Sweep(levels=levels):
            return max(levels)
        case _:
            return 0
