"""When requests are sent: closed loops, where an answer makes room for the next request, and open ones.

Every open process is one of unit rate (constant, exponential or gamma gaps) whose time is stretched by the rate asked
for, so a ramp of Poisson arrivals is a Poisson process too.
"""

import math
import random
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Rate = Annotated[float, Meta(gt=0, le=100_000)]
Concurrency = Annotated[int, Meta(ge=1, le=4096)]


class _Arrivals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Closed(_Arrivals, frozen=True, kw_only=True, tag="closed"):
    """So many streams, each of which sends its next request when its last one has ended."""

    concurrency: Concurrency


class Sweep(_Arrivals, frozen=True, kw_only=True, tag="sweep"):
    """A closed loop at each of several levels, in turn; duration, number and warm-up are those of a level."""

    levels: Annotated[tuple[Concurrency, ...], Meta(min_length=2)]


class Constant(_Arrivals, frozen=True, kw_only=True, tag="constant"):
    """`rate` requests a second, evenly spaced, the first one at once."""

    rate: Rate


class Poisson(_Arrivals, frozen=True, kw_only=True, tag="poisson"):
    """`rate` requests a second in the mean, at independent moments."""

    rate: Rate


class Gamma(_Arrivals, frozen=True, kw_only=True, tag="gamma"):
    """Gaps of a gamma distribution with the shape `burstiness`: 1 is Poisson, less is burstier, more is smoother."""

    rate: Rate
    burstiness: Annotated[float, Meta(gt=0, le=1000)]


class Ramp(_Arrivals, frozen=True, kw_only=True, tag="ramp"):
    """The rate goes linearly from one value to the other in `over_s` seconds and stays there."""

    start_rate: Annotated[float, Meta(ge=0, le=100_000)]
    end_rate: Rate
    over_s: Annotated[float, Meta(gt=0)]
    spacing: Literal["constant", "poisson"] = "poisson"


class Replay(_Arrivals, frozen=True, kw_only=True, tag="replay"):
    """Moments and lengths of a recorded trace; see loadtest/replay.py.

    Attributes:
        file: JSON Lines.
        time_scale: 2 replays at half the speed.
    """

    file: str
    time_scale: Annotated[float, Meta(gt=0)] = 1.0


OpenArrivals = Constant | Poisson | Gamma | Ramp
Arrivals = Closed | Sweep | Constant | Poisson | Gamma | Ramp | Replay


def offsets(arrivals: OpenArrivals, rng: random.Random) -> Iterator[float]:
    """Yield the moments of arrival in seconds from the start, ascending, without end."""
    match arrivals:
        case Constant():
            yield from (place / arrivals.rate for place in _whole_numbers())
        case Poisson():
            yield from (place / arrivals.rate for place in _sums(lambda: rng.expovariate(1.0)))
        case Gamma():
            shape = arrivals.burstiness
            yield from (place / arrivals.rate for place in _sums(lambda: rng.gammavariate(shape, 1.0 / shape)))
        case Ramp():
            places = _whole_numbers() if arrivals.spacing == "constant" else _sums(lambda: rng.expovariate(1.0))
            yield from (_when_so_many(arrivals, place) for place in places)


def _whole_numbers() -> Iterator[float]:
    number = 0
    while True:
        yield float(number)
        number += 1


def _sums(draw: Callable[[], float]) -> Iterator[float]:
    total = 0.0
    while True:
        total += draw()
        yield total


def _when_so_many(ramp: Ramp, count: float) -> float:
    """Return when the ramp's rate adds up to `count` arrivals: the inverse of a t + (b - a) t² / 2T, then of b t."""
    at_the_end = (ramp.start_rate + ramp.end_rate) / 2 * ramp.over_s
    if count >= at_the_end:
        return ramp.over_s + (count - at_the_end) / ramp.end_rate
    growth = (ramp.end_rate - ramp.start_rate) / ramp.over_s
    root = math.sqrt(max(0.0, ramp.start_rate**2 + 2 * growth * count))
    return 2 * count / (ramp.start_rate + root) if count else 0.0
