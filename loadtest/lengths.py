"""Distributions of prompt and output lengths, in tokens."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.errors import PlanError

Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class _Lengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Fixed(_Lengths, frozen=True, kw_only=True, tag="fixed"):
    """Always the same."""

    tokens: Tokens


class Uniform(_Lengths, frozen=True, kw_only=True, tag="uniform"):
    """Each whole number from `min` to `max` alike."""

    min: Tokens
    max: Tokens

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise ValueError(f"`min` must not be greater than `max`, got {self.min} and {self.max}")


class Normal(_Lengths, frozen=True, kw_only=True, tag="normal"):
    """Rounded draws of a normal distribution; one outside `min`..`max` becomes the nearer of the two."""

    mean: Annotated[float, Meta(gt=0)]
    std: Annotated[float, Meta(ge=0)]
    min: Tokens = 1
    max: Tokens = 1_000_000


class Lognormal(_Lengths, frozen=True, kw_only=True, tag="lognormal"):
    """Rounded draws of a lognormal distribution with this mean and standard deviation (of the length, not of its
    logarithm); one outside `min`..`max` becomes the nearer of the two."""

    mean: Annotated[float, Meta(gt=0)]
    std: Annotated[float, Meta(ge=0)]
    min: Tokens = 1
    max: Tokens = 1_000_000


class FromFile(_Lengths, frozen=True, kw_only=True, tag="file"):
    """Draws from the lengths in a file, one whole number a line."""

    file: str


Lengths = Fixed | Uniform | Normal | Lognormal | FromFile


def sampler(lengths: Lengths, rng: random.Random) -> Callable[[], int]:
    """Return what draws a length; raises PlanError for a file that can't be used."""
    match lengths:
        case Fixed(tokens=tokens):
            return lambda: tokens
        case Uniform(min=low, max=high):
            return lambda: rng.randint(low, high)
        case Normal():
            return lambda: _within(rng.normalvariate(lengths.mean, lengths.std), lengths)
        case Lognormal():
            variance = math.log1p((lengths.std / lengths.mean) ** 2)
            mu, sigma = math.log(lengths.mean) - variance / 2, math.sqrt(variance)
            return lambda: _within(rng.lognormvariate(mu, sigma), lengths)
        case FromFile(file=file):
            values = _read(Path(file))
            return lambda: rng.choice(values)


def mean(lengths: Lengths) -> float:
    """Return about how long they are in the mean: that of the distribution before `min` and `max` cut it."""
    match lengths:
        case Fixed(tokens=tokens):
            return float(tokens)
        case Uniform(min=low, max=high):
            return (low + high) / 2
        case FromFile(file=file):
            values = _read(Path(file))
            return sum(values) / len(values)
        case Normal() | Lognormal():
            return lengths.mean


def _within(value: float, bounds: Normal | Lognormal) -> int:
    return max(bounds.min, min(bounds.max, round(value)))


def _read(path: Path) -> list[int]:
    try:
        values = [int(line) for line in path.read_text().split()]
    except (OSError, ValueError) as error:
        raise PlanError(f"lengths can't be read from {path}: {error}") from None
    if not values or min(values) < 1:
        raise PlanError(f"{path} must have at least one length, each at least 1")
    return values
