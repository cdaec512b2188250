"""Two traces side by side: the first event in which they differ, and what that made of each request.

Compared is what the engine decided, not when: times, durations and numbers of events are left out, and a request is
named by its place in the order of arrival, for ids are drawn anew in every run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from observability.snapshot import Snapshot
from observability.trace_codec import TraceEvent, UnknownEvent
from observability.trace_explain import as_data
from observability.trace_file import TraceReader
from observability.trace_header import TraceHeader
from observability.trace_story import TraceStories

_SETTINGS: Final = (
    "model",
    "executor",
    "tokenizer",
    "block_size",
    "num_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "prefix_cache",
)
_TIMES: Final = ("seq", "t", "arrival", "schedule_s", "execute_s", "sample_s", "update_s")
_COMPARED: Final = ("outcome", "detail", "num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "cache_miss",
                    "num_chunks", "num_preemptions")  # fmt: skip


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Event number `place` (from 1) of both traces; None where one has ended."""

    place: int
    a: dict[str, Any] | None
    b: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RequestDifference:
    """The `number`-th request of both traces: decisions that differ, and the times of both; None where one lacks it."""

    number: int
    fields: tuple[str, ...]
    a: dict[str, Any] | None
    b: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """What differs.

    Attributes:
        settings: header fields with another value, as (a, b).
        first: the first event that differs; None if the sequences are the same.
        num_events: of a and b.
        num_requests: of a and b.
        requests: those that were decided differently.
        times: mean seconds of all requests that ended, by quantity, as (a, b).
    """

    settings: dict[str, tuple[Any, Any]]
    first: FirstDifference | None
    num_events: tuple[int, int]
    num_requests: tuple[int, int]
    requests: tuple[RequestDifference, ...]
    times: dict[str, tuple[float, float]]

    @property
    def is_same(self) -> bool:
        return self.first is None and not self.settings


class _Side:
    """One of the traces while it is read."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.stories = TraceStories(snapshot)
        self._numbers: dict[str, int] = {}
        for request in () if snapshot is None else snapshot.requests:
            self._number(request.request_id)

    def _number(self, request_id: str) -> str:
        return f"#{self._numbers.setdefault(request_id, len(self._numbers) + 1)}"

    def canonical(self, event: TraceEvent) -> dict[str, Any]:
        """Return what of an event is compared."""
        if isinstance(event, UnknownEvent):
            fields = {"type": event.type, "step": event.step, **event.fields}
        else:
            fields = msgspec.to_builtins(event)
        for name in _TIMES:
            fields.pop(name, None)
        if "request_id" in fields:
            fields["request_id"] = self._number(str(fields["request_id"]))
        return fields


def diff_traces(path_a: Path, path_b: Path) -> TraceDiff:
    """Compare two trace files; raises TraceFormatError or OSError for one that can't be read."""
    with TraceReader(path_a) as a, TraceReader(path_b) as b:
        sides = (_Side(a.snapshot), _Side(b.snapshot))
        first: FirstDifference | None = None
        for place, (event_a, event_b) in enumerate(_pairs(a, b), start=1):
            for side, event in zip(sides, (event_a, event_b), strict=True):
                if event is not None:
                    side.stories.take(event)
            if first is None:
                told_a = None if event_a is None else sides[0].canonical(event_a)
                told_b = None if event_b is None else sides[1].canonical(event_b)
                if told_a != told_b:
                    first = FirstDifference(place, told_a, told_b)
        return _diff(a.header, b.header, first, sides[0].stories, sides[1].stories)


def _pairs(a: TraceReader, b: TraceReader) -> Iterator[tuple[TraceEvent | None, TraceEvent | None]]:
    return zip_longest(a, b)


def _diff(
    a: TraceHeader, b: TraceHeader, first: FirstDifference | None, stories_a: TraceStories, stories_b: TraceStories
) -> TraceDiff:
    settings = {
        name: (getattr(a, name), getattr(b, name)) for name in _SETTINGS if getattr(a, name) != getattr(b, name)
    }
    rows_a = [as_data(story) for story in stories_a.stories.values()]
    rows_b = [as_data(story) for story in stories_b.stories.values()]
    differing = []
    for number, (row_a, row_b) in enumerate(zip_longest(rows_a, rows_b), start=1):
        fields = () if row_a is None or row_b is None else tuple(n for n in _COMPARED if row_a[n] != row_b[n])
        if fields or row_a is None or row_b is None:
            differing.append(RequestDifference(number, fields, row_a, row_b))
    return TraceDiff(
        settings=settings,
        first=first,
        num_events=(stories_a.num_events, stories_b.num_events),
        num_requests=(len(rows_a), len(rows_b)),
        requests=tuple(differing),
        times={name: (_mean(rows_a, name), _mean(rows_b, name)) for name in ("queue_s", "ttft_s", "e2e_s")},
    )


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) / len(values) if values else 0.0
