"""The stages that a plan runs in: one, or one for each level of a sweep."""

from dataclasses import dataclass

from loadtest.arrivals import Arrivals, Closed, Constant, Gamma, Poisson, Ramp, Replay, Sweep
from loadtest.plan import LoadPlan
from loadtest.stage_run import StageShape


@dataclass(frozen=True)
class Stage:
    """One stage and how people call it."""

    label: str
    shape: StageShape


def stages_of(plan: LoadPlan) -> list[Stage]:
    """Return the stages in order."""
    if isinstance(plan.arrivals, Sweep):
        return [_stage(plan, streams(level), level) for level in plan.arrivals.levels]
    concurrency = plan.arrivals.concurrency if isinstance(plan.arrivals, Closed) else None
    return [_stage(plan, label(plan.arrivals), concurrency)]


def label(arrivals: Arrivals) -> str:
    """Return the arrivals in words."""
    match arrivals:
        case Closed(concurrency=concurrency):
            return streams(concurrency)
        case Sweep(levels=levels):
            return f"sweep over {', '.join(map(str, levels))} streams"
        case Constant(rate=rate):
            return f"constant, {rate:g}/s"
        case Poisson(rate=rate):
            return f"poisson, {rate:g}/s"
        case Gamma(rate=rate, burstiness=burstiness):
            return f"gamma, {rate:g}/s, burstiness {burstiness:g}"
        case Ramp(start_rate=start, end_rate=end, over_s=over_s):
            return f"ramp, {start:g}/s to {end:g}/s in {over_s:g} s"
        case Replay(file=file, time_scale=scale):
            return f"replay of {file}" + ("" if scale == 1 else f", time times {scale:g}")


def streams(concurrency: int) -> str:
    return "1 stream" if concurrency == 1 else f"{concurrency} streams"


def _stage(plan: LoadPlan, text: str, concurrency: int | None) -> Stage:
    return Stage(
        text,
        StageShape(concurrency=concurrency, duration_s=plan.duration_s, warm_up_s=plan.warm_up_s, drain_s=plan.drain_s),
    )
