"""The sequence of requests that a plan comes to: the same for equal plans, whatever the server does."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtest.arrivals import Closed, Replay, Sweep, offsets
from loadtest.lengths import sampler
from loadtest.plan import LoadPlan
from loadtest.replay import read_trace


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request before it is sent.

    Attributes:
        number: from 0 within its stage.
        offset_s: when to send it, in seconds from the stage's start; 0 in a closed loop, which doesn't ask.
        prompt_tokens, output_tokens: lengths.
        prefix_group: whose shared beginning it has.
        hash_ids: blocks of a replayed trace; they replace the shared beginning.
    """

    number: int
    offset_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_group: int = 0
    hash_ids: tuple[int, ...] = ()


def planned_requests(plan: LoadPlan, *, stage: int = 0) -> Iterator[PlannedRequest]:
    """Yield the requests of a stage in order, up to the plan's end (a closed loop's duration is up to the loop).

    Raises:
        PlanError: a file of the plan can't be used.
    """
    requests: Iterator[PlannedRequest]
    if isinstance(plan.arrivals, Replay):
        requests = _replayed(plan.arrivals)
    else:
        requests = _drawn(plan, stage)
    if plan.num_requests:
        requests = itertools.islice(requests, plan.num_requests)
    if plan.duration_s:
        requests = itertools.takewhile(lambda request: request.offset_s < plan.duration_s, requests)
    return requests


def _drawn(plan: LoadPlan, stage: int) -> Iterator[PlannedRequest]:
    def rng(purpose: str) -> random.Random:
        return random.Random(f"{plan.seed}/{stage}/{purpose}")

    arrivals = plan.arrivals
    assert not isinstance(arrivals, Replay)
    moments = itertools.repeat(0.0) if isinstance(arrivals, Closed | Sweep) else offsets(arrivals, rng("arrivals"))
    prompt_tokens = sampler(plan.prompt_tokens, rng("prompt lengths"))
    output_tokens = sampler(plan.output_tokens, rng("output lengths"))
    groups, num_groups = rng("prefix groups"), plan.shared_prefix.groups
    return (
        PlannedRequest(number, moment, prompt_tokens(), output_tokens(), groups.randrange(num_groups))
        for number, moment in enumerate(moments)
    )


def _replayed(replay: Replay) -> Iterator[PlannedRequest]:
    trace = read_trace(Path(replay.file))
    first = trace[0].timestamp
    return (
        PlannedRequest(
            number,
            (request.timestamp - first) / 1e3 * replay.time_scale,
            request.input_length,
            request.output_length,
            hash_ids=request.hash_ids,
        )
        for number, request in enumerate(trace)
    )
