"""loadtest/arrivals.py: each process is what it is called, by the Kolmogorov-Smirnov test, and is repeatable."""

import itertools
import math
import random
from collections.abc import Callable

import pytest

from loadtest.arrivals import Constant, Gamma, OpenArrivals, Poisson, Ramp, offsets

COUNT = 4000


def first(arrivals: OpenArrivals, count: int = COUNT, *, seed: int = 11) -> list[float]:
    return list(itertools.islice(offsets(arrivals, random.Random(seed)), count))


def gaps(moments: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise([0.0, *moments])]


def ks_p_value(samples: list[float], cdf: Callable[[float], float]) -> float:
    """Return the probability of a distance at least this large from a true `cdf` (Kolmogorov's limit distribution)."""
    n = len(samples)
    ascending = sorted(samples)
    distance = max(max(cdf(value) - place / n, (place + 1) / n - cdf(value)) for place, value in enumerate(ascending))
    x = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance  # Stephens' correction for finite n
    tail = 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return max(0.0, min(1.0, tail))


def gamma_cdf(shape: float) -> Callable[[float], float]:
    """Return the distribution function of the gamma distribution with mean 1: the series of the incomplete gamma."""

    def cdf(value: float) -> float:
        x = value * shape
        if x <= 0:
            return 0.0
        if x > shape + 60 * math.sqrt(shape) + 60:
            return 1.0
        term = total = 1.0 / shape
        for n in range(1, 2000):
            term *= x / (shape + n)
            total += term
            if term < total * 1e-15:
                break
        return min(1.0, math.exp(shape * math.log(x) - x - math.lgamma(shape)) * total)

    return cdf


def exponential_cdf(value: float) -> float:
    return 1 - math.exp(-value)


def test_gamma_cdf_of_shape_one_is_the_exponential_one() -> None:
    for value in (0.01, 0.5, 1.0, 3.0, 8.0):
        assert gamma_cdf(1.0)(value) == pytest.approx(exponential_cdf(value), rel=1e-9)


def test_constant_arrivals_are_evenly_spaced_from_the_start() -> None:
    assert first(Constant(rate=4), 5) == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_pass_the_kolmogorov_smirnov_test(seed: int) -> None:
    scaled = [gap * 7 for gap in gaps(first(Poisson(rate=7), seed=seed))]
    assert ks_p_value(scaled, exponential_cdf) > 0.01
    assert ks_p_value(scaled, gamma_cdf(1.2)) < 1e-4  # the test can tell


@pytest.mark.parametrize("shape", [0.25, 0.5, 4.0])
def test_gamma_gaps_pass_the_kolmogorov_smirnov_test(shape: float) -> None:
    scaled = [gap * 3 for gap in gaps(first(Gamma(rate=3, burstiness=shape)))]
    assert ks_p_value(scaled, gamma_cdf(shape)) > 0.01
    assert ks_p_value(scaled, exponential_cdf) < 1e-4


def test_constant_ramp_has_so_many_arrivals_as_the_area_under_its_rate() -> None:
    moments = first(Ramp(start_rate=0, end_rate=10, over_s=10, spacing="constant"), 100)
    assert sum(moment < 5 for moment in moments) == pytest.approx(12.5, abs=1)
    assert sum(moment < 10 for moment in moments) == pytest.approx(50, abs=1)
    assert gaps(moments[60:])[1:] == pytest.approx([0.1] * 39)  # the end rate holds


@pytest.mark.parametrize(("start", "end"), [(1.0, 40.0), (40.0, 1.0), (5.0, 5.0)])
def test_poisson_ramp_is_a_poisson_process_in_stretched_time(start: float, end: float) -> None:
    ramp = Ramp(start_rate=start, end_rate=end, over_s=100)
    inside = [moment for moment in first(ramp) if moment < 100]
    areas = [start * t + (end - start) * t * t / 200 for t in inside]
    assert len(inside) == pytest.approx((start + end) * 50, rel=0.1)
    assert ks_p_value(gaps(areas), exponential_cdf) > 0.01
    assert inside == sorted(inside)


def test_arrivals_equal_seeds_give_equal_moments() -> None:
    for arrivals in (Poisson(rate=2), Gamma(rate=2, burstiness=0.3), Ramp(start_rate=1, end_rate=2, over_s=5)):
        assert first(arrivals, 50, seed=4) == first(arrivals, 50, seed=4) != first(arrivals, 50, seed=5)
