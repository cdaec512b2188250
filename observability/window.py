"""What happened in each of the last seconds: the numbers behind rates, percentiles over a window, and charts."""

from collections import deque
from dataclasses import dataclass, field

import msgspec

from observability.sketch import Sketch


@dataclass(slots=True)
class Second:
    """Sums over one second, and the gauges as they stood at its end.

    Attributes:
        second: monotonic seconds, rounded down.
        busy_s: wall time spent in steps that ended in this second.
        sliding: percentiles of the seconds up to this one, once they have been asked for.
    """

    second: int
    prefill_tokens: int = 0
    decode_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    steps: int = 0
    decode_steps: int = 0
    decode_seqs: int = 0
    busy_s: float = 0.0
    schedule_s: float = 0.0
    execute_s: float = 0.0
    sample_s: float = 0.0
    update_s: float = 0.0
    requests_received: int = 0
    requests_ended: int = 0
    preemptions: int = 0
    evictions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    ttft: Sketch = field(default_factory=Sketch)
    itl: Sketch = field(default_factory=Sketch)
    gauges: "Gauges" = field(default_factory=lambda: Gauges())
    sliding: "Sliding | None" = None


class Gauges(msgspec.Struct, frozen=True, gc=False):
    """The state of the engine at one moment; `blocked_on` is what the head of the queue waits for."""

    running: int = 0
    waiting: int = 0
    kv_free: int = 0
    kv_referenced: int = 0
    kv_cached: int = 0
    blocked_on: str = ""


@dataclass(frozen=True, slots=True)
class Sliding:
    """Percentiles in seconds over the last few seconds; None where there were too few samples."""

    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None


class Window:
    """The last seconds, oldest first, without gaps.

    Args:
        num_seconds: how many to keep.
        start: monotonic seconds of the first.
    """

    # A message about the end of a second may still be on its way from the engine's process when the second is over.
    SETTLE_S = 0.25

    def __init__(self, num_seconds: int, start: float) -> None:
        self._seconds: deque[Second] = deque([Second(int(start))], maxlen=num_seconds)

    def at(self, t: float) -> Second:
        """Return the second that `t` falls in: a new one if need be, the oldest kept if it is gone already."""
        newest = self._seconds[-1]
        offset = int(t) - newest.second
        if offset == 0:
            return newest
        if offset < 0:
            return self._seconds[max(0, len(self._seconds) - 1 + offset)]
        self._advance(int(t))
        return self._seconds[-1]

    def set_gauges(self, t: float, gauges: Gauges) -> None:
        """Say how things stand at `t`; seconds in which nobody says so keep the gauges of the one before."""
        self.at(t).gauges = gauges

    def complete(self, now: float, num_seconds: int) -> list[Second]:
        """Return the last `num_seconds` seconds that are over and settled, oldest first."""
        self._advance(int(now))
        end = int(now - self.SETTLE_S)
        return [second for second in self._seconds if end - num_seconds <= second.second < end]

    def _advance(self, target: int) -> None:
        newest = self._seconds[-1]
        first_missing = max(newest.second + 1, target - (self._seconds.maxlen or 1) + 1)
        for number in range(first_missing, target + 1):
            self._seconds.append(Second(number, gauges=newest.gauges))
