"""What a browser asks for when it starts a load, checked into a plan and the servers to run it against."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dashboard.targets import Target
from loadtest.arrivals import Replay
from loadtest.errors import LoadTestError, PlanError
from loadtest.lengths import FromFile
from loadtest.plan import LoadPlan, make_plan
from loadtest.target import Target as LoadTarget

MAX_TRACE_CHARS = 16 << 20
TRACE_NAME = "trace.jsonl"


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server of the list and the name of a model there; an empty one asks the server for its first."""

    target: str
    model: Annotated[str, Meta(max_length=400)] = ""


class LoadOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /api/load/runs.

    Attributes:
        sides: one server, or two that take turns.
        plan: fields of loadtest/plan.py; files can't be named, a trace comes in `trace`.
        rounds: how often each of two servers has its turn.
        trace: JSON Lines of a replay.
        label: what people call the run.
    """

    sides: Annotated[list[Side], Meta(min_length=1, max_length=2)]
    plan: dict[str, Any]
    rounds: Annotated[int, Meta(ge=1, le=10)] = 1
    trace: Annotated[str, Meta(max_length=MAX_TRACE_CHARS)] = ""
    label: Annotated[str, Meta(max_length=200)] = ""


def plan_of(order: LoadOrder) -> LoadPlan:
    """Return the order's plan; a replay's file is TRACE_NAME, which the run replaces by where it put the trace.

    Raises:
        PlanError: the plan is wrong, or names a file of the dashboard's machine.
    """
    content = dict(order.plan)
    arrivals = content.get("arrivals")
    for name in ("arrivals", "prompt_tokens", "output_tokens"):
        part = content.get(name)
        if isinstance(part, dict) and "file" in part:
            raise PlanError(f"`{name}.file` can't be given here; a trace is sent along, in `trace`")
    if isinstance(arrivals, dict) and arrivals.get("kind") == "replay":
        if not order.trace.strip():
            raise PlanError("a replay needs a `trace`: drop its file into the form")
        content["arrivals"] = {**arrivals, "file": TRACE_NAME}
    plan = make_plan(content)
    assert not isinstance(plan.prompt_tokens, FromFile)
    assert not isinstance(plan.output_tokens, FromFile)
    return plan


def with_trace(plan: LoadPlan, file: str) -> LoadPlan:
    """Return the plan of a replay with another file; any other plan as it is."""
    if not isinstance(plan.arrivals, Replay):
        return plan
    return msgspec.structs.replace(plan, arrivals=msgspec.structs.replace(plan.arrivals, file=file))


def load_target(side: Side, targets: Mapping[str, Target]) -> LoadTarget:
    """Return the server as the load generator wants it; raises LoadTestError if it isn't listed."""
    target = targets.get(side.target)
    if target is None:
        raise LoadTestError(f"there is no target {side.target}")
    return LoadTarget(url=target.url, model=side.model)
