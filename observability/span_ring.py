"""The last traces, in memory: what the dashboard shows with no collector anywhere. Bounded, and counted where it is.

Traces with a generation have a ring of their own: a page that asks for `/stats` every second makes a trace each time,
and would push them out within minutes.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan


@dataclass(slots=True)
class KeptTrace:
    """Spans of one trace that are over, in the order in which they came.

    Attributes:
        has_generation: whether one of them is a generation's.
        num_refused: spans beyond the bound.
    """

    trace_id: str
    spans: list[ReadableSpan] = field(default_factory=list)
    has_generation: bool = False
    num_refused: int = 0


@dataclass(frozen=True, slots=True)
class SpanRingSizes:
    """How many traces are kept, with a generation and without, and how many spans of each."""

    generations: int = 1024
    others: int = 256
    spans: int = 256


class SpanRing:
    """Traces by id, the oldest go first.

    Args:
        sizes: the bounds.

    Attributes:
        num_overwritten: traces that gave way to newer ones.
        num_refused: spans of traces that were full.
    """

    def __init__(self, sizes: SpanRingSizes | None = None) -> None:
        self.sizes = sizes or SpanRingSizes()
        self.num_overwritten = 0
        self.num_refused = 0
        self._generations: OrderedDict[str, KeptTrace] = OrderedDict()
        self._others: OrderedDict[str, KeptTrace] = OrderedDict()

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._generations or trace_id in self._others

    def __len__(self) -> int:
        return len(self._generations) + len(self._others)

    def add(self, trace_id: str, spans: Sequence[ReadableSpan], *, is_generation: bool) -> None:
        """Keep finished spans of a trace."""
        kept = self._generations.get(trace_id) or self._others.pop(trace_id, None) or KeptTrace(trace_id)
        kept.has_generation = kept.has_generation or is_generation
        room = self.sizes.spans - len(kept.spans)
        kept.spans += spans[:room] if room > 0 else ()
        num_refused = max(0, len(spans) - max(0, room))
        kept.num_refused += num_refused
        self.num_refused += num_refused
        if kept.has_generation:
            self._put(self._generations, kept, self.sizes.generations)
        else:
            self._put(self._others, kept, self.sizes.others)

    def get(self, trace_id: str) -> KeptTrace | None:
        return self._generations.get(trace_id) or self._others.get(trace_id)

    def __iter__(self) -> Iterator[KeptTrace]:
        """Iterate over all kept traces, generations first, newest first in each."""
        yield from reversed(self._generations.values())
        yield from reversed(self._others.values())

    def _put(self, ring: OrderedDict[str, KeptTrace], kept: KeptTrace, capacity: int) -> None:
        ring[kept.trace_id] = kept
        if len(ring) > capacity:
            ring.popitem(last=False)
            self.num_overwritten += 1
