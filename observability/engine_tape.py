"""The engine's time as a tape: what it did at each moment, so that any stretch of it can be split into causes at once.

    messages | schedule | execute | sample, update ... | messages | schedule | execute | ...
             started    scheduled executed             ended

Running totals are kept at each step, so what a stretch was made of is the difference of two readings, however many
steps it spans. The execute stage is shared out by tokens: of P prefill and D decode tokens, P / (P + D) of its time is
prefill and the rest decode. Time on the tape that isn't execute is host time. The reason for which the head of the
queue waits holds from the end of one schedule stage to the end of the next.

A step that failed, or was lost with its process, says nothing of its time: from its start on nothing is known.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from engine.events import EngineFailed, Event, StepFinished, StepStarted
from observability.label_sets import WAIT_REASONS

MAX_STEPS = 8_192

_PLACES = {reason: place for place, reason in enumerate(WAIT_REASONS)}
_NEXT_STEP = _PLACES["next_step"]


class Work(NamedTuple):
    """Totals in seconds up to a moment: known engine time, and execute time by kind."""

    known: float
    decode: float
    prefill: float


class StepOnTape(msgspec.Struct, frozen=True, gc=False):
    """One step: where its stages end (monotonic seconds), its tokens, and the totals when it began.

    `waits` are totals by reason (in the order of WAIT_REASONS) at `scheduled`; from there on `reason` grows.
    """

    number: int
    started: float
    scheduled: float
    executed: float
    ended: float
    num_prefill_tokens: int
    num_decode_tokens: int
    decode_before: float
    prefill_before: float
    waits: tuple[float, ...]
    reason: int

    @property
    def prefill_share(self) -> float:
        return self.share_of(self.num_prefill_tokens)

    def share_of(self, num_tokens: int) -> float:
        """Return what part of the step's tokens these are, 0 in a step without any."""
        all_tokens = self.num_prefill_tokens + self.num_decode_tokens
        return num_tokens / all_tokens if all_tokens else 0.0


class EngineTape:
    """Written with step events, read at any moment from its beginning on.

    Args:
        origin: monotonic seconds from which on it can be read.
    """

    def __init__(self, origin: float) -> None:
        nothing = (0.0,) * len(WAIT_REASONS)
        self._steps = [StepOnTape(-1, origin, origin, origin, origin, 0, 0, 0.0, 0.0, nothing, _NEXT_STEP)]
        self._told: dict[int, StepFinished] = {}
        self._begun: StepStarted | None = None
        self._known_until = float("inf")

    # --- writing ---

    def expect(self, events: Sequence[Event]) -> None:
        """Look ahead in the events of a message: its steps can then be read while its other events are taken in."""
        last = events[-1]
        if last.step - events[0].step > 1:  # several steps, in a recording
            self._told.update({event.step: event for event in events if isinstance(event, StepFinished)})
        elif isinstance(last, StepFinished):
            self._told[last.step] = last
        elif isinstance(last, EngineFailed) and last.lost:
            self._known_until = min(self._known_until, self._steps[-1].ended)

    def begin(self, event: StepStarted) -> None:
        """A step begins; if its end is not known, nothing is from here on."""
        finished = self._told.pop(event.step, None)
        if finished is not None:
            self._add(event.t, finished)
            return
        self._begun = event
        self._known_until = event.t

    def end(self, event: StepFinished) -> None:
        """Put a step on the tape that was not expected; one that was is there already."""
        if self._begun is not None:
            self._known_until = float("inf")
            self._add(self._begun.t, event)

    def restart(self) -> None:
        """Another engine life begins."""
        self._begun = None
        self._told.clear()
        self._known_until = float("inf")

    def _add(self, started: float, event: StepFinished) -> StepOnTape:
        before = self._steps[-1]
        execute, prefill_share = before.executed - before.scheduled, before.prefill_share
        scheduled = started + event.schedule_s
        waits = self.waits(scheduled)
        step = StepOnTape(
            number=event.step,
            started=started,
            scheduled=scheduled,
            executed=scheduled + event.execute_s,
            ended=event.t,
            num_prefill_tokens=event.num_prefill_tokens,
            num_decode_tokens=event.num_decode_tokens,
            decode_before=before.decode_before + execute * (1.0 - prefill_share),
            prefill_before=before.prefill_before + execute * prefill_share,
            waits=waits,
            reason=_PLACES.get(event.blocked_on, _NEXT_STEP),
        )
        self._begun = None
        self._steps.append(step)
        if len(self._steps) > MAX_STEPS:
            del self._steps[: MAX_STEPS // 2]
        return step

    # --- reading ---

    @property
    def latest(self) -> float:
        """End of the last step told."""
        return self._steps[-1].ended

    def step(self, number: int) -> StepOnTape | None:
        """Return the last step if it has this number: the one whose events are being taken in."""
        last = self._steps[-1]
        return last if last.number == number else None

    def work(self, t: float) -> Work:
        """Return the totals at `t`."""
        step = self._steps[self._index_at(t)]
        share = step.prefill_share
        execute = min(max(0.0, t - step.scheduled), step.executed - step.scheduled)
        known = min(t, self._known_until)
        return Work(known, step.decode_before + execute * (1.0 - share), step.prefill_before + execute * share)

    def waits(self, t: float) -> tuple[float, ...]:
        """Return for how long, up to `t`, each of WAIT_REASONS was the one that a waiting head waits for."""
        index = self._index_at(t)
        if t < self._steps[index].scheduled:
            index = max(0, index - 1)
        step = self._steps[index]
        waits = list(step.waits)
        waits[step.reason] += max(0.0, t - step.scheduled)
        return tuple(waits)

    def _index_at(self, t: float) -> int:
        """Return the place of the last step that began by `t`."""
        steps = self._steps
        if t >= steps[-1].started:
            return len(steps) - 1
        return max(0, bisect_right(steps, t, key=lambda step: step.started) - 1)
