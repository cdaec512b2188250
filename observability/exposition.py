"""The text that Prometheus scrapes, of which only what has changed since the last scrape is written anew.

prometheus_client says how it is written: it writes each head and, once, each series. To have it write whatever has
changed at every scrape takes seven to nine milliseconds of the core that serves; so the changed numbers are put into
its lines here (observability/exposition_lines.py), and what stands still (routes that nobody asks, buckets that nothing
falls into) is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from observability.exposition_lines import HistogramLines, NumberLine, number, starts_of
from observability.instruments import (
    Counter,
    CounterSeries,
    Gauge,
    GaugeSeries,
    Histogram,
    HistogramSeries,
    Info,
    Instrument,
    S,
)

Encode = Callable[["OneFamily"], bytes]
AnyInstrument = Counter | Gauge | Histogram | Info

_COMMENT = "# "


class OneFamily:
    """What prometheus_client's encoders ask for families, with just one."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


class Exposition:
    """Writes instruments in one text format.

    Args:
        instruments: to write, in this order.
        encode: of prometheus_client, for that format.
        shows_exemplars: whether the format has them.
    """

    def __init__(self, instruments: Iterable[AnyInstrument], encode: Encode, *, shows_exemplars: bool) -> None:
        self._pages = [_page_of(instrument, encode, shows_exemplars=shows_exemplars) for instrument in instruments]

    def body(self) -> bytes:
        """Return help, type and samples of each instrument, without an end mark."""
        parts: list[str] = []
        for page in self._pages:
            page.write_to(parts)
        return "".join(parts).encode()


class _Page(Generic[S]):
    """What is written about one instrument."""

    def __init__(self, instrument: Instrument[S], encode: Encode, *, shows_exemplars: bool) -> None:
        self._instrument: Instrument[S] = instrument
        self._encode = encode
        self._shows_exemplars = shows_exemplars
        self._head, _ = _encoded(encode, instrument.family([]))
        self._series: list[NumberLine | HistogramLines] = []

    def write_to(self, parts: list[str]) -> None:
        parts.append(self._head)
        if len(self._series) < self._instrument.num_series:
            self._begin_series()
        parts += [series.text() for series in self._series]

    def _begin_series(self) -> None:
        """Have the library write those that exist since the last time; series are never removed."""
        for values, series in list(self._instrument.items())[len(self._series) :]:
            _, at_zero = _encoded(self._encode, self._instrument.family_at_zero(values))
            self._series.append(self._lines(series, starts_of(at_zero)))

    def _lines(self, series: S, starts: Sequence[str]) -> NumberLine | HistogramLines:
        if isinstance(series, HistogramSeries):
            return HistogramLines(series, starts, shows_exemplars=self._shows_exemplars)
        return NumberLine(series, starts)


class _InfoPage:
    """What is written about an Info, whose labels change when the engine is up and then no more."""

    def __init__(self, info: Info, encode: Encode) -> None:
        self._info = info
        self._encode = encode
        self._values: tuple[str, ...] | None = None
        self._text = "".join(_encoded(encode, info.family()))

    def write_to(self, parts: list[str]) -> None:
        if self._info.values != self._values:
            self._values = self._info.values
            self._text = "".join(_encoded(self._encode, self._info.family()))
        parts.append(self._text)


class CollectorPage:
    """What a collector of prometheus_client says in gauges and counters without labels, of which only numbers change.

    Args:
        collector: asked each time.
        encode: of prometheus_client, for one text format.
    """

    def __init__(self, collector: Collector, encode: Encode) -> None:
        self._collector = collector
        self._encode = encode
        self._starts: dict[str, str] = {}

    def body(self) -> bytes:
        """Return help, type and number of each."""
        return "".join([self._text(family) for family in self._collector.collect()]).encode()

    def _text(self, family: Metric) -> str:
        start = self._starts.get(family.name)
        if start is None:
            head, line = _encoded(self._encode, family)
            start = self._starts[family.name] = head + line[: line.rindex(" ") + 1]
        (sample,) = family.samples
        return f"{start}{number(sample.value)}\n"


_AnyPage = _Page[CounterSeries] | _Page[GaugeSeries] | _Page[HistogramSeries] | _InfoPage


def _page_of(instrument: AnyInstrument, encode: Encode, *, shows_exemplars: bool) -> _AnyPage:
    match instrument:
        case Counter():
            return _Page(instrument, encode, shows_exemplars=shows_exemplars)
        case Gauge():
            return _Page(instrument, encode, shows_exemplars=shows_exemplars)
        case Histogram():
            return _Page(instrument, encode, shows_exemplars=shows_exemplars)
        case Info():
            return _InfoPage(instrument, encode)


def _encoded(encode: Encode, family: Metric) -> tuple[str, str]:
    """Return the comment lines of a family, and its samples."""
    lines = encode(OneFamily(family)).decode().split("\n")[:-1]
    head = [f"{line}\n" for line in lines if line.startswith(_COMMENT) and line != "# EOF"]
    return "".join(head), "".join(f"{line}\n" for line in lines if not line.startswith(_COMMENT))
