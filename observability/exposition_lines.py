"""The lines of one series in a text format: what never changes of them is kept, numbers and exemplars are written.

What is kept is prometheus_client's own: it writes each series once, at zero, and its lines are cut before the number.
So names, suffixes, the order of labels and their escaping are the library's, and only three things are written here:
numbers, the ends of lines, and exemplars. tests/observability/test_exposition_lines.py compares with what it writes.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
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

    __slots__ = (
        "_counts",
        "_exemplars",
        "_form",
        "_has_count_and_sum",
        "_series",
        "_shown_exemplars",
        "_shows_exemplars",
        "_sum",
        "_text",
    )

    def __init__(self, series: HistogramSeries, starts: Sequence[str], *, shows_exemplars: bool) -> None:
        num_buckets = len(series.counts)
        self._series = series
        starts = [start.replace("%", "%%") for start in starts]
        buckets = "".join(f"{start}%s%s\n" for start in starts[:num_buckets])
        self._form = buckets + "".join(f"{start}%s\n" for start in starts[num_buckets:])
        self._has_count_and_sum = len(starts) > num_buckets
        self._shows_exemplars = shows_exemplars
        self._shown_exemplars = [""] * num_buckets
        self._counts: list[int] = []
        self._exemplars: dict[int, tuple[str, float, float]] = {}
        self._sum = _UNWRITTEN
        self._text = ""

    def text(self) -> str:
        """Return the lines as they are now."""
        series = self._series
        is_kept = series.sum is self._sum and series.counts == self._counts and series.exemplars == self._exemplars
        if not is_kept:
            if self._shows_exemplars:
                self._show_exemplars(series.exemplars)
            self._counts, self._exemplars, self._sum = series.counts.copy(), series.exemplars.copy(), series.sum
            self._text = self._written()
        return self._text

    def _show_exemplars(self, exemplars: dict[int, tuple[str, float, float]]) -> None:
        """Write those that have changed since the last time; most have not."""
        for bucket in exemplars.keys() | self._exemplars.keys():
            kept = exemplars.get(bucket)
            if kept is not self._exemplars.get(bucket):
                self._shown_exemplars[bucket] = exemplar(*kept) if kept is not None else ""

    def _written(self) -> str:
        shown = [f"{so_far}.0" if so_far < _PLAIN_BELOW else number(so_far) for so_far in accumulate(self._counts)]
        numbers = chain.from_iterable(zip(shown, self._shown_exemplars, strict=True))
        if not self._has_count_and_sum:
            return self._form % tuple(numbers)
        return self._form % (*numbers, shown[-1], number(self._sum))


def number(value: float) -> str:
    """Return a number as both formats write it: 1.0, 1e-05, 1.234567e+06, +Inf, NaN."""
    return repr(float(value)) if -_PLAIN_BELOW < value < _PLAIN_BELOW else _with_exponent(value)


def exemplar(trace_id: str, value: float, wall: float) -> str:
    """Return what follows the number of a bucket's line: the trace of one value that fell into it, and when it did."""
    escaped = trace_id.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f' # {{trace_id="{escaped}"}} {number(value)} {wall}'
