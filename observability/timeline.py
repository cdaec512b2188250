"""The life of one request, and the project's only implementation of its latency definitions.

    arrival     monotonic stamp when the body is parsed, before template and tokenizer
    TTFT        first token handed to the transport - arrival; includes queueing. An answer that isn't streamed hands
                over no token of its own, so the engine-side stamp stands in. `ttft_engine_s` is kept beside it
    queue       sum of all intervals in which the request as a whole waited, from queued to scheduled and again from
                preempted to resumed; `first_queue_s` is the first of them
    prefill     first scheduled -> first token (engine side)
    decode      first token -> last token (engine side)
    ITL         gap between consecutive tokens of one choice; tokens of one step have gaps of 0 after the first.
                `stall` is the largest gap
    TPOT        (E2E - TTFT) / (n - 1), n the tokens of the longest choice (choices decode side by side); None if n < 2
    E2E         arrival -> last byte handed to the transport; the terminal event where no service stands in between
    cause       observability/attribution.py splits E2E into exclusive causes

All stamps are monotonic seconds of one machine.
"""

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.events import PrefixLookup, RequestChunk, RequestPreempted, RequestResumed, RequestTokens

if TYPE_CHECKING:
    from observability.attribution import EngineShare

FIRST_MARK_EVERY = 32
MAX_MARKS = 128


class RequestState(enum.Enum):
    OPENED = "opened"  # the service has it, the engine not yet
    WAITING = "waiting"  # queued, or every choice preempted
    RUNNING = "running"  # holds KV blocks
    ENDED = "ended"  # a terminal event, or refused before the engine saw it


class Outcome(enum.Enum):
    FINISHED = "finished"
    FAILED = "failed"
    ABORTED = "aborted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a choice was after a step: `num_tokens` in all."""

    t: float
    step: int
    num_tokens: int


@dataclass(slots=True)
class ChoiceTimeline:
    """Token times of one choice; `itl_sum_s` over `num_gaps` gaps.

    `marks` say how far it was every FIRST_MARK_EVERY tokens; a long choice has as many marks, further apart.
    """

    num_tokens: int = 0
    first_token: float | None = None
    last_token: float | None = None
    num_gaps: int = 0
    itl_sum_s: float = 0.0
    stall_s: float = 0.0
    finish_reason: str = ""
    marks: list[Mark] = field(default_factory=list)
    mark_every: int = FIRST_MARK_EVERY
    next_mark: int = FIRST_MARK_EVERY

    def mark(self, event: RequestTokens) -> None:
        """Take note of how far it is; when there are MAX_MARKS, every other one goes and they are set half as often."""
        self.marks.append(Mark(event.t, event.step, self.num_tokens))
        if len(self.marks) == MAX_MARKS:
            del self.marks[::2]
            self.mark_every *= 2
        self.next_mark = self.num_tokens + self.mark_every

    def add(self, num_tokens: int, t: float) -> float | None:
        """Take note of new tokens at `t`; return the gap before them, None for the first ones."""
        last = self.last_token
        self.last_token = t
        self.num_tokens += num_tokens
        if last is None:
            self.num_gaps += num_tokens - 1
            return None
        gap = t - last
        self.num_gaps += num_tokens
        self.itl_sum_s += gap
        if gap > self.stall_s:
            self.stall_s = gap
        return gap


@dataclass(frozen=True, slots=True)
class Chunk:
    """A prefill chunk: tokens start..start+num_tokens-1 of a choice, computed in `step`."""

    t: float
    step: int
    index: int
    start: int
    num_tokens: int
    num_recomputed: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A closed waiting interval; `cause` is `queued` or `preempted`."""

    start: float
    end: float
    cause: str


@dataclass(slots=True)
class Preemption:
    """One choice without its blocks, from `t` on until `resumed`; None if it never was."""

    index: int
    t: float
    step: int
    num_lost_tokens: int
    resumed: float | None = None
    resumed_step: int = 0
    num_recompute_tokens: int = 0


class Interval(NamedTuple):
    """Monotonic seconds."""

    start: float
    end: float


@dataclass(slots=True)
class RequestTimeline:
    """Stamps of one request as they come in; the quantities of the module docstring as properties.

    Attributes:
        via_service: whether a service stands between engine and client (it stamps arrival, first and last byte).
        in_engine: whether the engine has taken note of it.
        first_seq, last_seq: numbers of its first and its terminal event; 0 for what happened outside the engine.
        first_step, last_step: engine steps of its first admission and of its terminal event; 0 likewise.
        encoded: when its prompt was token ids.
        taken: when the service turned its last tokens into text.
        detokenize_s: all the time that this took, over all its tokens.
        blocked: writes of its answer that a slow reader held up.
        share: its time in the engine by cause; None until the engine has taken note of it.
        answer_reason: the finish reason that its client is told, where the service says one.
        counted_before_scrape: expositions of the metrics before its end was counted in them.
        is_sending: the engine is done with it, its last byte is still to be sent.
        lookup: what was found in the prefix cache; None until it was looked up.
    """

    request_id: str
    arrival: float
    via_service: bool = False
    trace_id: str = ""
    route: str = ""
    model: str = ""
    stream: bool = False
    in_engine: bool = False
    num_prompt_tokens: int = 0
    max_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    lookup: PrefixLookup | None = None
    share: "EngineShare | None" = None
    chunks: list[Chunk] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    first_seq: int = 0
    last_seq: int = 0
    first_step: int = 0
    last_step: int = 0
    waiting_since: float | None = None
    first_scheduled: float | None = None
    choices: dict[int, ChoiceTimeline] = field(default_factory=dict)
    encoded: float | None = None
    taken: Interval | None = None
    detokenize_s: float = 0.0
    blocked: list[Interval] = field(default_factory=list)
    sent_first: float | None = None
    sent_last: float | None = None
    ended: float | None = None
    outcome: Outcome | None = None
    finish_reason: str = ""
    error_type: str = ""
    message: str = ""
    answer_reason: str = ""
    counted_before_scrape: int = 0
    is_sending: bool = False
    _preempted: set[int] = field(default_factory=set)

    # --- stamps ---

    def queued(self, t: float) -> None:
        if self.waiting_since is None:
            self.waiting_since = t

    def scheduled(self, t: float, num_cached_tokens: int) -> None:
        self.num_cached_tokens = num_cached_tokens
        if self.first_scheduled is None:
            self.first_scheduled = t
        self._stop_waiting(t)

    def add_chunk(self, event: RequestChunk) -> None:
        chunk = Chunk(event.t, event.step, event.index, event.start, event.num_tokens, event.num_recomputed)
        self.chunks.append(chunk)

    def choice(self, index: int) -> ChoiceTimeline:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = ChoiceTimeline()
        return choice

    def preempted(self, event: RequestPreempted) -> None:
        self.num_preemptions += 1
        self.preemptions.append(Preemption(event.index, event.t, event.step, event.num_lost_tokens))
        self._preempted.add(event.index)
        self._wait_if_nothing_runs(event.t)

    def resumed(self, event: RequestResumed) -> None:
        self._preempted.discard(event.index)
        for preemption in reversed(self.preemptions):
            if preemption.index == event.index and preemption.resumed is None:
                preemption.resumed, preemption.resumed_step = event.t, event.step
                preemption.num_recompute_tokens = event.num_recompute_tokens
                break
        self._stop_waiting(event.t)

    def choice_finished(self, index: int, finish_reason: str, t: float) -> None:
        self.choice(index).finish_reason = finish_reason
        self._preempted.discard(index)
        self._wait_if_nothing_runs(t)

    def end(self, outcome: Outcome, t: float, *, finish_reason: str, error_type: str = "", message: str = "") -> None:
        """Take the one terminal stamp."""
        self._stop_waiting(t)
        self.outcome = outcome
        self.ended = t
        self.finish_reason = finish_reason
        self.error_type = error_type
        self.message = message

    def _wait_if_nothing_runs(self, t: float) -> None:
        running = [i for i, c in self.choices.items() if not c.finish_reason and i not in self._preempted]
        if self._preempted and not running and self.waiting_since is None:
            self.waiting_since = t

    def _stop_waiting(self, t: float) -> None:
        if self.waiting_since is None:
            return
        cause = "preempted" if self._preempted or self.num_preemptions else "queued"
        self.waits.append(Wait(self.waiting_since, t, cause))
        self.waiting_since = None

    # --- quantities ---

    @property
    def state(self) -> RequestState:
        if self.outcome is not None:
            return RequestState.ENDED
        if self.waiting_since is not None:
            return RequestState.WAITING
        if self.first_scheduled is not None:
            return RequestState.RUNNING
        return RequestState.OPENED

    @property
    def is_in_inbox(self) -> bool:
        """Whether it was sent to the engine, which has not taken note of it."""
        return self.encoded is not None and not self.in_engine and self.outcome is None

    @property
    def num_output_tokens(self) -> int:
        return sum(choice.num_tokens for choice in self.choices.values())

    @property
    def first_token(self) -> float | None:
        """Engine-side stamp of the first token of any choice."""
        stamps = [c.first_token for c in self.choices.values() if c.first_token is not None]
        return min(stamps) if stamps else None

    @property
    def last_token(self) -> float | None:
        stamps = [c.last_token for c in self.choices.values() if c.last_token is not None]
        return max(stamps) if stamps else None

    @property
    def ttft_engine_s(self) -> float | None:
        return _interval(self.arrival, self.first_token)

    @property
    def ttft_s(self) -> float | None:
        if self.stream and self.sent_first is not None:
            return self.sent_first - self.arrival
        return self.ttft_engine_s

    @property
    def queue_s(self) -> float:
        """Sum of the closed waiting intervals."""
        return sum(wait.end - wait.start for wait in self.waits)

    @property
    def first_queue_s(self) -> float | None:
        return self.waits[0].end - self.waits[0].start if self.waits else None

    @property
    def prefill_s(self) -> float | None:
        return _interval(self.first_scheduled, self.first_token)

    @property
    def decode_s(self) -> float | None:
        return _interval(self.first_token, self.last_token)

    @property
    def mean_itl_s(self) -> float | None:
        num_gaps = sum(choice.num_gaps for choice in self.choices.values())
        return sum(choice.itl_sum_s for choice in self.choices.values()) / num_gaps if num_gaps else None

    @property
    def stall_s(self) -> float | None:
        """The largest gap between two tokens of one choice; None while there is no gap."""
        gaps = [choice.stall_s for choice in self.choices.values() if choice.num_gaps]
        return max(gaps) if gaps else None

    @property
    def end_of_life(self) -> float | None:
        return self.sent_last if self.sent_last is not None else self.ended

    @property
    def e2e_s(self) -> float | None:
        return _interval(self.arrival, self.end_of_life)

    @property
    def tpot_s(self) -> float | None:
        n = max((choice.num_tokens for choice in self.choices.values()), default=0)
        if n < 2 or self.e2e_s is None or self.ttft_s is None:
            return None
        return (self.e2e_s - self.ttft_s) / (n - 1)

    @property
    def prefix_why(self) -> str:
        """Why not more of the prompt was found in the prefix cache; "" if all was, or it wasn't looked up."""
        return self.lookup.why if self.lookup is not None else ""

    def blocked_between(self, start: float, end: float) -> float:
        """Return how much of start..end a slow reader held up."""
        return sum(max(0.0, min(end, blocked.end) - max(start, blocked.start)) for blocked in self.blocked)

    @property
    def num_computed_tokens(self) -> int:
        """Prompt tokens computed for the first time, over all chunks."""
        return sum(fresh_prompt_tokens(chunk, self.num_prompt_tokens) for chunk in self.chunks)

    @property
    def num_recomputed_tokens(self) -> int:
        return sum(chunk.num_recomputed for chunk in self.chunks)


def fresh_prompt_tokens(chunk: Chunk | RequestChunk, num_prompt_tokens: int) -> int:
    """Return how many tokens of a chunk belong to the prompt and had not been computed before.

    After a preemption a chunk runs over the prompt's end into the output, whose newest token was never computed.
    """
    return max(0, min(chunk.start + chunk.num_tokens, num_prompt_tokens) - (chunk.start + chunk.num_recomputed))


def _interval(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None else None
