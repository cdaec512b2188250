"""The text that Prometheus scrapes, of which only what has changed since the last scrape is written anew.

prometheus_client encodes; for all of our series that takes up to ten milliseconds of the core that serves. Most of them
stand still from one scrape to the next (routes that nobody asks, buckets that nothing falls into), so the lines of each
series are kept beside the state that they were made of.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from observability.instruments import Counter, Gauge, Histogram, Info, Instrument, S

Encode = Callable[["OneFamily"], bytes]
AnyInstrument = Counter | Gauge | Histogram | Info

_COMMENT = b"# "


class OneFamily:
    """What prometheus_client's encoders ask for families, with just one."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


class Exposition:
    """Writes instruments in one text format.

    Args:
        encode: of prometheus_client, for that format.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._heads: dict[str, bytes] = {}
        self._lines: dict[tuple[str, tuple[str, ...]], tuple[object, bytes]] = {}
        self.num_encoded = 0

    def body(self, instruments: Iterable[AnyInstrument]) -> bytes:
        """Return help, type and samples of each instrument, without an end mark."""
        parts: list[bytes] = []
        for instrument in instruments:
            match instrument:
                case Info():
                    parts += self._info(instrument)
                case Counter():
                    parts += self._series(instrument)
                case Gauge():
                    parts += self._series(instrument)
                case Histogram():
                    parts += self._series(instrument)
        return b"".join(parts)

    def _series(self, instrument: Instrument[S]) -> Iterator[bytes]:
        name = instrument.name
        if name not in self._heads:
            self._heads[name] = self._encoded(instrument.family([]))[0]
        yield self._heads[name]
        for values, series in instrument.items():
            state = series.state()
            kept = self._lines.get((name, values))
            if kept is None or kept[0] != state:
                kept = (state, self._encoded(instrument.family_of(values, series))[1])
                self._lines[name, values] = kept
            yield kept[1]

    def _info(self, info: Info) -> Iterator[bytes]:
        yield from self._encoded(info.family())

    def _encoded(self, family: Metric) -> tuple[bytes, bytes]:
        """Return the comment lines of a family, and its samples."""
        self.num_encoded += 1
        lines = self._encode(OneFamily(family)).splitlines(keepends=True)
        head = [line for line in lines if line.startswith(_COMMENT) and not line.startswith(b"# EOF")]
        return b"".join(head), b"".join(line for line in lines if not line.startswith(_COMMENT))
