"""The statistics of one metric in the form that load generators of this field share."""

import math
from collections.abc import Iterable

import msgspec

from observability.percentiles import percentile


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles are nearest ranks (observability/percentiles.py), None where a tail would need more samples."""

    unit: str
    avg: float | None = None
    p1: float | None = None
    p5: float | None = None
    p10: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    min: float | None = None
    max: float | None = None
    std: float | None = None
    count: int = 0
    sum: float = 0.0


def distribution(samples: Iterable[float], unit: str) -> Distribution:
    """Return the statistics of the samples; the standard deviation is that of the samples themselves (not n - 1)."""
    ascending = sorted(samples)
    count = len(ascending)
    if not count:
        return Distribution(unit=unit)
    total = math.fsum(ascending)
    avg = total / count
    return Distribution(
        unit=unit,
        avg=avg,
        p1=_low(ascending, 1),
        p5=_low(ascending, 5),
        p10=_low(ascending, 10),
        p25=_low(ascending, 25),
        p50=percentile(ascending, 50),
        p75=percentile(ascending, 75),
        p90=percentile(ascending, 90),
        p95=percentile(ascending, 95),
        p99=percentile(ascending, 99),
        min=ascending[0],
        max=ascending[-1],
        std=math.sqrt(math.fsum((sample - avg) ** 2 for sample in ascending) / count),
        count=count,
        sum=total,
    )


def _low(ascending: list[float], q: float) -> float | None:
    """Return a percentile below the median, which needs as many samples below it as its mirror image above."""
    return percentile(ascending, q) if len(ascending) * q >= 100 else None
