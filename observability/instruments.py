"""Counters, gauges and histograms with closed label sets, cheap enough for one observation per token.

prometheus_client's own types take a lock and walk the bucket list in Python at each observation; here a series is a
slot object that the recorder holds on to, and prometheus_client only says how it is written. A label is declared with
every value it can take, so no client text can ever become a series. Single-threaded, like the event loop that owns it.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Exemplar

PREFIX = "pellucid_"


@dataclass(frozen=True, slots=True)
class Label:
    """A label and all its values.

    Attributes:
        name: as exposed.
        values: the closed set.
        other: the member that stands for everything outside `values`; "" means that such a value is our own mistake
            and raises ValueError.
    """

    name: str
    values: tuple[str, ...]
    other: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        """Every value that can be exposed."""
        return self.values if not self.other or self.other in self.values else (*self.values, self.other)

    def closed(self, value: str) -> str:
        """Return `value` if it is in the set, else `other`."""
        if value in self.values:
            return value
        if not self.other:
            raise ValueError(f"label `{self.name}` takes one of {', '.join(self.values)}, got {value!r}")
        return self.other


class CounterSeries:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class GaugeSeries:
    """A number that is what it is now."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class HistogramSeries:
    """Counts per bucket, the sum, and per bucket the newest exemplar.

    Args:
        bounds: ascending inclusive upper bounds; +Inf is implied.
    """

    __slots__ = ("bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, tuple[str, float, float]] = {}

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float, *, times: int = 1, trace_id: str = "", wall: float = 0.0) -> None:
        """Count `value` `times` times; with a trace id it becomes its bucket's exemplar, stamped `wall` (epoch s)."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += times
        self.sum += value * times
        if trace_id:
            self.exemplars[bucket] = (trace_id, value, wall)

    def forget_exemplars(self, is_known: Callable[[str], bool]) -> None:
        """Drop the exemplars whose trace id isn't known any more."""
        gone = [bucket for bucket, (trace_id, _, _) in self.exemplars.items() if not is_known(trace_id)]
        for bucket in gone:
            del self.exemplars[bucket]


S = TypeVar("S", CounterSeries, GaugeSeries, HistogramSeries)


class Instrument(ABC, Generic[S]):
    """One metric: name, help and its series.

    Args:
        name: without the prefix; a counter's ends in `_total`.
        help: one sentence, with the unit and the moment of counting where that matters.
        labels: closed label sets; with one label or none every series exists from the start, at zero.
    """

    def __init__(self, name: str, help: str, *labels: Label) -> None:  # noqa: A002 - Prometheus calls it help
        self.name = PREFIX + name
        self.help = help
        self.labels = labels
        self._series: dict[tuple[str, ...], S] = {}
        if len(labels) < 2:
            for values in product(*(label.members for label in labels)):
                self._series[values] = self._new()

    @abstractmethod
    def _new(self) -> S:
        """Return a series at its start."""

    def at(self, *values: str) -> S:
        """Return the series of these label values, each first brought into its closed set."""
        series = self._series.get(values)
        if series is not None:
            return series
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has {len(self.labels)} labels, got {len(values)} values")
        key = tuple(label.closed(value) for label, value in zip(self.labels, values, strict=True))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._new()
        return series

    def items(self) -> Iterator[tuple[tuple[str, ...], S]]:
        """Iterate over (label values, series)."""
        return iter(self._series.items())

    @property
    def num_series(self) -> int:
        return len(self._series)

    def all_series(self) -> Iterable[S]:
        """Return every series."""
        return self._series.values()

    @abstractmethod
    def family(self, items: Iterable[tuple[tuple[str, ...], S]] | None = None) -> Metric:
        """Return the current values in prometheus_client's form; of these series only if they are given."""

    def family_at_zero(self, values: tuple[str, ...]) -> Metric:
        """Return one series as it begins, in prometheus_client's form."""
        return self.family([(values, self._new())])

    @property
    def label_names(self) -> list[str]:
        return [label.name for label in self.labels]


class Counter(Instrument[CounterSeries]):
    """A counter; see Instrument."""

    def _new(self) -> CounterSeries:
        return CounterSeries()

    def total(self) -> float:
        """Return the sum over all series."""
        return sum(series.value for _, series in self.items())

    def family(self, items: Iterable[tuple[tuple[str, ...], CounterSeries]] | None = None) -> Metric:
        family = CounterMetricFamily(self.name.removesuffix("_total"), self.help, labels=self.label_names)
        for values, series in self.items() if items is None else items:
            family.add_metric(values, series.value)
        return family


class Gauge(Instrument[GaugeSeries]):
    """A gauge; see Instrument."""

    def _new(self) -> GaugeSeries:
        return GaugeSeries()

    def family(self, items: Iterable[tuple[tuple[str, ...], GaugeSeries]] | None = None) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=self.label_names)
        for values, series in self.items() if items is None else items:
            family.add_metric(values, series.value)
        return family


class Info:
    """A gauge that is always 1 and says things in its labels; empty until `set`.

    The values come from our own process (version, loaded model), never from a client.

    Attributes:
        values: the label values in the order of `label_names`, None before `set`.
    """

    def __init__(self, name: str, help: str, *label_names: str) -> None:  # noqa: A002 - Prometheus calls it help
        self.name = PREFIX + name
        self.help = help
        self.label_names = label_names
        self.values: tuple[str, ...] | None = None

    def set(self, **values: str) -> None:
        """Replace the labels; there is one series at a time."""
        self.values = tuple(values[name] for name in self.label_names)

    def family(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=self.label_names)
        if self.values is not None:
            family.add_metric(self.values, 1)
        return family


class Histogram(Instrument[HistogramSeries]):
    """A histogram; see Instrument.

    Args:
        bounds: ascending inclusive upper bounds, without +Inf.
        exemplars: whether observations name a trace where they have a sampled one.
    """

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002 - Prometheus calls it help
        *labels: Label,
        bounds: tuple[float, ...],
        exemplars: bool = False,
    ) -> None:
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds of {name} must ascend, got {bounds}")
        self.bounds = bounds
        self.has_exemplars = exemplars
        super().__init__(name, help, *labels)

    def _new(self) -> HistogramSeries:
        return HistogramSeries(self.bounds)

    def family(self, items: Iterable[tuple[tuple[str, ...], HistogramSeries]] | None = None) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=self.label_names)
        for values, series in self.items() if items is None else items:
            family.add_metric(values, exposed_buckets(series), series.sum)
        return family


def exposed_buckets(series: HistogramSeries) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    """Return (upper bound, cumulative count[, exemplar]) of each bucket, +Inf last."""
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    cumulative = 0
    for bucket, bound in enumerate((*(repr(bound) for bound in series.bounds), "+Inf")):
        cumulative += series.counts[bucket]
        kept = series.exemplars.get(bucket)
        buckets.append((bound, cumulative) if kept is None else (bound, cumulative, _exemplar(kept)))
    return buckets


def _exemplar(kept: tuple[str, float, float]) -> Exemplar:
    trace_id, value, wall = kept
    return Exemplar({"trace_id": trace_id}, value, wall)
