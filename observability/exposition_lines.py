"""The lines of one series in a text format: what never changes of them is kept, numbers and exemplars are written.

What is kept is prometheus_client's own: it writes each series once, at zero, and its lines are cut before the number.
So names, suffixes, the order of labels and their escaping are the library's, and only three things are written here:
numbers, the ends of lines, and exemplars. tests/observability/test_exposition_lines.py compares with what it writes.
"""

from collections.abc import Callable, Sequence
from typing import cast

from prometheus_client.utils import floatToGoString

from observability.instruments import CounterSeries, GaugeSeries, HistogramSeries

AT_ZERO = " 0.0"
_PLAIN_BELOW = 1e6  # from here on the format wants an exponent where Python has none
_with_exponent = cast(Callable[[float], str], floatToGoString)
_UNWRITTEN = float("nan")  # no series holds this very object


def starts_of(lines_at_zero: str) -> list[str]:
    """Return each line up to and with the space before its number.

    Args:
        lines_at_zero: samples of one series that has counted nothing.
    """
    lines = lines_at_zero.removesuffix("\n").split("\n")
    assert all(line.endswith(AT_ZERO) for line in lines), lines
    return [line.removesuffix(AT_ZERO) + " " for line in lines]


class NumberLine:
    """The line of a counter or a gauge.

    Args:
        series: whose value it shows.
        starts: one; see starts_of.
    """

    __slots__ = ("_series", "_start", "_text", "_value")

    def __init__(self, series: CounterSeries | GaugeSeries, starts: Sequence[str]) -> None:
        self._series = series
        (self._start,) = starts
        self._value = _UNWRITTEN
        self._text = ""

    def text(self) -> str:
        """Return the line as it is now."""
        value = self._series.value
        if value is not self._value:  # the same object is the same number; 0.0 == -0.0, but they look different
            self._value = value
            self._text = f"{self._start}{number(value)}\n"
        return self._text


class HistogramLines:
    """The lines of a histogram's series: its buckets, and the count and the sum where the library has them.

    It has none for a histogram with bounds below zero.

    Args:
        series: whose state they show.
        starts: in the order of the lines; see starts_of.
        shows_exemplars: whether the format has them.
    """

    __slots__ = ("_counts", "_exemplars", "_series", "_shows_exemplars", "_starts", "_sum", "_tail", "_text")

    def __init__(self, series: HistogramSeries, starts: Sequence[str], *, shows_exemplars: bool) -> None:
        num_buckets = len(series.counts)
        self._series = series
        self._starts = starts[:num_buckets]
        self._tail = starts[num_buckets:]
        self._shows_exemplars = shows_exemplars
        self._counts: list[int] = []
        self._exemplars: dict[int, tuple[str, float, float]] = {}
        self._sum = _UNWRITTEN
        self._text = ""

    def text(self) -> str:
        """Return the lines as they are now."""
        series = self._series
        is_kept = series.sum is self._sum and series.counts == self._counts and series.exemplars == self._exemplars
        if not is_kept:
            self._counts, self._exemplars, self._sum = series.counts.copy(), series.exemplars.copy(), series.sum
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        exemplars = self._exemplars if self._shows_exemplars else {}
        lines: list[str] = []
        cumulative = 0
        for bucket, (start, count) in enumerate(zip(self._starts, self._counts, strict=True)):
            cumulative += count
            shown = f"{cumulative}.0" if cumulative < _PLAIN_BELOW else number(cumulative)
            lines.append(
                f"{start}{shown}{exemplar(*exemplars[bucket])}\n" if bucket in exemplars else f"{start}{shown}\n"
            )
        if self._tail:
            of_count, of_sum = self._tail
            lines.append(f"{of_count}{number(cumulative)}\n{of_sum}{number(self._sum)}\n")
        return "".join(lines)


def number(value: float) -> str:
    """Return a number as both formats write it: 1.0, 1e-05, 1.234567e+06, +Inf, NaN."""
    return repr(float(value)) if -_PLAIN_BELOW < value < _PLAIN_BELOW else _with_exponent(value)


def exemplar(trace_id: str, value: float, wall: float) -> str:
    """Return what follows the number of a bucket's line: the trace of one value that fell into it, and when it did."""
    escaped = trace_id.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f' # {{trace_id="{escaped}"}} {number(value)} {wall}'
