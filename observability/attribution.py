"""Where a request's wall time went: exclusive causes that sum to it.

    tokenize       arrival until the prompt is token ids: template, tokenizer, waiting for one of their threads
    queue_inbox    from there until the engine has taken note of it, mostly the rest of a step that was running
    queue_REASON   from there until it is scheduled, by what the head of the queue waits for (nobody overtakes the head)
    prefill        execute time of the steps in which its prompt was computed, by its share of the tokens
    decode         execute time of the steps in which it decoded, by the decodes' share of the tokens
    interference   the share of others' prefill tokens in those steps, and all execute time of steps that computed
                   nothing of it while it held blocks
    recompute      as prefill, for tokens that had been computed before a preemption
    preempted      no choice of it held blocks, after one had
    host           while it held blocks, what wasn't execute: schedule, sampling, update, messages between steps; and
                   from the engine's last word until the service has taken it up
    detokenize     the service turns its last tokens into text
    send           from there until the last byte is handed to the transport; before, what a slow reader held up after
                   the engine's end
    unattributed   the rest: time of a step that failed or was lost, an end that nobody took up

The unit of the execute stage is the token: a step of D decode tokens and P prefill tokens, c of them the request's own
(r of these for the second time), that executes for E seconds gives

    a request that decodes     decode E·D/N, interference E·P/N                                           N = D + P
    a request that prefills    prefill or recompute E·(c + D)/N in the proportion c - r : r, interference E·(P - c)/N

The decodes of a batch share one pass over the weights, so each has all of its time, not a D-th of it. A request with
several choices is one request: it decodes as long as one choice does, it is preempted when none holds blocks. Each
prompt of a call is a request of its own, whose tokenizing and sending are the call's: an answer that is complete before
its siblings waits for them, and that is `send`.

Work of the service beside the engine's steps (turning earlier tokens into text, writing earlier frames) costs the
request no time and is no cause; its amount is kept with the timeline.
"""

import enum

from observability.engine_tape import EngineTape, StepOnTape, Work
from observability.label_sets import CAUSES, WAIT_REASONS
from observability.timeline import RequestTimeline

_QUEUE_CAUSES = tuple(f"queue_{reason}" for reason in WAIT_REASONS)


class _Mode(enum.Enum):
    OUTSIDE = 0  # not in the engine
    QUEUED = 1
    COMPUTING = 2  # holds blocks
    PREEMPTED = 3


class EngineShare:
    """What one request's time in the engine was, from `queued` to its end; told of every change of its state.

    Between two changes nothing is counted: the tape's totals are read at both. So a token costs nothing here.

    Args:
        tape: the engine's.

    Attributes:
        seconds: by cause, up to the last change.
        entered, left: monotonic seconds of the first and the last change.
        limit: nothing after it counts, for the answer was complete.
    """

    __slots__ = ("_decoding", "_mode", "_step", "_tape", "_waits", "_work", "entered", "left", "limit", "seconds")

    def __init__(self, tape: EngineTape) -> None:
        self.seconds = dict.fromkeys(CAUSES, 0.0)
        self.entered: float | None = None
        self.left = 0.0
        self.limit = float("inf")
        self._tape = tape
        self._mode = _Mode.OUTSIDE
        self._decoding: set[int] = set()
        self._step = -1
        self._work = Work(0.0, 0.0, 0.0)
        self._waits: tuple[float, ...] = ()

    # --- changes ---

    def queued(self, t: float) -> None:
        if self.entered is None:
            self.entered = self.left = t
            self._waits = self._tape.waits(t)
            self._mode = _Mode.QUEUED

    def scheduled(self, t: float) -> None:
        """It holds blocks from here on."""
        self.settle(t)
        if self._mode is not _Mode.COMPUTING:
            self._mode = _Mode.COMPUTING
            self._work = self._tape.work(self.left)

    def resumed(self, index: int, t: float, *, decodes: bool) -> None:
        """A choice holds blocks again; it `decodes` at once if all but its newest token was found in the cache."""
        self.scheduled(t)
        if decodes:
            self._decoding.add(index)

    def computes(self, step: StepOnTape, index: int, *, num_tokens: int, num_recomputed: int, is_last: bool) -> None:
        """A chunk of one choice is computed in a step; with the last one the choice decodes."""
        self.settle(step.scheduled)
        seconds = self.seconds
        recompute_part = num_recomputed / num_tokens
        if self._step != step.number:
            self._step = step.number
            self._skip_execute(step, recompute_part)
        own = max(0.0, min(step.executed, self.limit) - step.scheduled) * step.share_of(num_tokens)
        seconds["interference"] -= own
        seconds["recompute"] += own * recompute_part
        seconds["prefill"] += own * (1.0 - recompute_part)
        if is_last:
            self._decoding.add(index)

    def decodes(self, index: int, t: float) -> None:
        """A choice has its first token."""
        self.settle(t)
        self._decoding.add(index)

    def rests(self, index: int, t: float, *, waits: bool) -> None:
        """A choice gave its blocks back, preempted or complete; `waits` says whether the whole request waits now."""
        self.settle(t)
        self._decoding.discard(index)
        if waits:
            self._mode = _Mode.PREEMPTED

    # --- counting ---

    def settle(self, t: float) -> None:
        """Count the time since the last change, up to `t` or the limit."""
        t = min(t, self.limit)
        if t <= self.left or self._mode is _Mode.OUTSIDE:
            return
        seconds = self.seconds
        if self._mode is _Mode.QUEUED:
            waits = self._tape.waits(t)
            for cause, earlier, later in zip(_QUEUE_CAUSES, self._waits, waits, strict=True):
                seconds[cause] += later - earlier
            self._waits = waits
        elif self._mode is _Mode.PREEMPTED:
            seconds["preempted"] += t - self.left
        else:
            before, now = self._work, self._tape.work(t)
            decode, prefill = now.decode - before.decode, now.prefill - before.prefill
            seconds["decode" if self._decoding else "interference"] += decode
            seconds["interference"] += prefill
            seconds["host"] += now.known - before.known - decode - prefill
            self._work = now
        self.left = t

    def _skip_execute(self, step: StepOnTape, recompute_part: float) -> None:
        """Count a step's execute stage as others' work, but the decodes' share as ours; our tokens come on top."""
        executed = min(step.executed, self.limit)
        if executed <= self.left:
            return
        before, now = self._work, self._tape.work(executed)
        decode, prefill = now.decode - before.decode, now.prefill - before.prefill
        seconds = self.seconds
        seconds["interference"] += prefill
        if self._decoding:
            seconds["decode"] += decode
        else:
            seconds["recompute"] += decode * recompute_part
            seconds["prefill"] += decode * (1.0 - recompute_part)
        seconds["host"] += now.known - before.known - decode - prefill
        self._work, self.left = now, executed


def attribution_of(timeline: RequestTimeline, now: float) -> dict[str, float]:
    """Return seconds by cause (CAUSES) of a request's life so far; they sum to its duration, or to `now - arrival`.

    The engine tells of a step when it is over: for a request that runs, the current one is unattributed.
    """
    share = timeline.share
    seconds = dict(share.seconds) if share is not None else dict.fromkeys(CAUSES, 0.0)
    end = timeline.end_of_life
    if end is None:
        end = now
    entered = share.entered if share is not None and share.entered is not None else None
    _before_the_engine(timeline, seconds, min(end, entered) if entered is not None else end)
    if share is not None and entered is not None:
        _after_the_engine(timeline, seconds, min(share.left, end), end)
    seconds["unattributed"] = end - timeline.arrival - sum(seconds.values())
    return seconds


def _before_the_engine(timeline: RequestTimeline, seconds: dict[str, float], end: float) -> None:
    """Split arrival to `end`, when the engine took note of the request or it ended before that."""
    if not timeline.via_service:
        encoded = timeline.arrival
    elif timeline.encoded is None:
        encoded = end
    else:
        encoded = min(timeline.encoded, end)
    seconds["tokenize"] = encoded - timeline.arrival
    seconds["queue_inbox"] = end - encoded


def _after_the_engine(timeline: RequestTimeline, seconds: dict[str, float], start: float, end: float) -> None:
    """Split the engine's last word to the last byte sent."""
    taken = timeline.taken
    if timeline.ended is None and taken is None:
        return
    if taken is None:
        seconds["send"] = timeline.blocked_between(start, end)
        return
    begun, done = (min(max(t, start), end) for t in (taken.start, taken.end))
    blocked = timeline.blocked_between(start, begun)
    seconds["host"] += begun - start - blocked
    seconds["detokenize"] = done - begun
    seconds["send"] = blocked + end - done
