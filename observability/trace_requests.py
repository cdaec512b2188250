"""The life of every request rebuilt from events alone: its order, its computed tokens, its one end.

Memory is bounded by the requests in flight: of those that ended, the newest MAX_ENDED are remembered by name.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from engine.events import (
    PrefixLookup,
    RequestAborted,
    RequestArrived,
    RequestChunk,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    RequestFirstToken,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    RequestTokens,
    SequenceFinished,
)
from observability.snapshot import SnapshotRequest
from observability.trace_block import Choice, InvariantError

Terminal = RequestRejected | RequestFinished | RequestFailed | RequestAborted

MAX_ENDED: Final = 16_384


@dataclass(slots=True)
class ChoiceLife:
    """One choice.

    Attributes:
        num_computed_tokens: tokens whose KV the events say is written and its own.
        num_output_tokens: tokens it was given.
        running: holds blocks and is neither preempted nor finished.
        num_preemptions: how often it lost its blocks.
        has_progressed: whether it made a token since it was last resumed.
        finished: its `sequence_finished` came.
    """

    num_computed_tokens: int = 0
    num_output_tokens: int = 0
    running: bool = False
    num_preemptions: int = 0
    has_progressed: bool = True
    finished: bool = False


@dataclass(slots=True)
class RequestLife:
    """One request that hasn't ended: what its `arrived` said, how far it came, and its choices by index."""

    arrived: RequestArrived
    queued: bool = False
    scheduled: bool = False
    num_cached_tokens: int = 0
    num_matched_tokens: int | None = None  # by its prefix_lookup
    choices: dict[int, ChoiceLife] = field(default_factory=dict)


class RebuiltRequests:
    """Applies request events.

    Attributes:
        live: requests that arrived and haven't ended.
        num_ended: requests that ended, by terminal event type.
        num_received: `arrived` events.
        num_adopted: in flight already when the trace begins, by its snapshot.
        num_futile_resumes: resumed choices that were preempted again before they made a token.
    """

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self.live: dict[str, RequestLife] = {}
        self.num_ended: Counter[str] = Counter()
        self._ended: dict[str, str] = {}  # terminal event type of the latest to end, oldest first
        self._last_lives: dict[str, RequestLife] = {}
        self._complete: set[str] = set()
        self.num_received = 0
        self.num_adopted = 0
        self.num_futile_resumes = 0

    def handlers(self) -> dict[type[RequestEvent], Callable[[Any], None]]:
        """Return what checks an event of each type against those before it; each raises InvariantError."""
        return {
            RequestTokens: self._if_known(self._got_tokens),
            RequestArrived: self._arrived,
            RequestQueued: self._if_known(self._queued),
            PrefixLookup: self._if_known(self._looked_up),
            RequestScheduled: self._if_known(self._scheduled),
            RequestChunk: self._if_known(self._computed),
            RequestFirstToken: self._if_known(self._got_first_token),
            RequestPreempted: self._if_known(self._preempted),
            RequestResumed: self._if_known(self._resumed),
            SequenceFinished: self._if_known(self._sequence_finished),
            RequestRejected: self._if_known(self._has_ended),
            RequestFinished: self._if_known(self._has_ended),
            RequestFailed: self._if_known(self._has_ended),
            RequestAborted: self._if_known(self._has_ended),
        }

    def start_with(self, requests: Iterable[SnapshotRequest]) -> None:
        """Take over the requests of a snapshot; raises InvariantError if it contradicts itself."""
        for told in requests:
            if told.request_id in self.live:
                raise InvariantError(f"the snapshot has request {told.request_id!r} twice")
            arrived = RequestArrived(
                seq=told.arrived_seq,
                t=told.arrived_t,
                step=told.arrived_step,
                request_id=told.request_id,
                arrival=told.arrival,
                num_prompt_tokens=told.num_prompt_tokens,
                max_tokens=told.max_tokens,
                n=told.n,
                priority=told.priority,
                salted=told.salted,
            )
            life = RequestLife(
                arrived=arrived,
                queued=told.queued,
                scheduled=told.scheduled,
                num_cached_tokens=told.num_cached_tokens,
                num_matched_tokens=None if told.num_matched_tokens < 0 else told.num_matched_tokens,
            )
            for choice in told.choices:
                life.choices[choice.index] = ChoiceLife(
                    num_computed_tokens=choice.num_computed_tokens,
                    num_output_tokens=choice.num_output_tokens,
                    running=choice.running,
                    num_preemptions=choice.num_preemptions,
                    finished=choice.finished,
                )
            self.live[told.request_id] = life
            self.num_adopted += 1

    def is_running(self, choice: Choice) -> bool:
        """Whether a choice holds blocks."""
        life = self.live.get(choice[0])
        return life is not None and choice[1] in life.choices and life.choices[choice[1]].running

    def just_ended(self) -> Iterator[Choice]:
        """Yield the choices of the requests that ended since `settle`."""
        return ((request_id, index) for request_id, life in self._last_lives.items() for index in life.choices)

    def _if_known(self, handle: Callable[[Any, RequestLife], None]) -> Callable[[Any], None]:
        """Return a handler that is given the life of the event's request too, and refuses what has none."""
        live = self.live

        def handle_known(event: RequestEvent) -> None:
            life = live.get(event.request_id)
            if life is None:
                self._refuse_unknown(event.request_id)
            else:
                handle(event, life)

        return handle_known

    def _refuse_unknown(self, request_id: str) -> None:
        if request_id in self._ended:
            raise InvariantError(f"request {request_id!r} got an event after it ended with `{self._ended[request_id]}`")
        if self._from_start:
            long_ago = f", or after {MAX_ENDED} others ended since it did" if self.num_ended.total() > MAX_ENDED else ""
            raise InvariantError(f"request {request_id!r} got an event before it arrived{long_ago}")

    def num_written_tokens(self, request_id: str, index: int) -> int | None:
        """Return how many tokens of a choice can have their KV written by now; None if the trace can't tell.

        A decode is said by the token that comes of it, after the block it fills is published: so once the prompt is
        computed, all tokens known count. Requests that just ended are remembered until `settle`, for they
        publish while they let go.
        """
        life = self.live.get(request_id) or self._last_lives.get(request_id)
        if life is None:
            return None
        choice = life.choices.get(index)
        if choice is None:
            return 0
        num_known = life.arrived.num_prompt_tokens + choice.num_output_tokens
        return num_known if choice.num_computed_tokens == num_known - 1 else choice.num_computed_tokens

    def settle(self) -> None:
        """Between two steps: raise if a request is complete and not ended; forget the details of those that ended."""
        if self._complete:
            name = min(self._complete)
            raise InvariantError(f"every choice of request {name!r} has finished, but the request hasn't ended")
        self._last_lives.clear()

    def _arrived(self, event: RequestArrived) -> None:
        if event.request_id in self.live or event.request_id in self._ended:
            raise InvariantError(f"request {event.request_id!r} arrived twice")
        if event.arrival > event.t:
            raise InvariantError(
                f"request {event.request_id!r} arrived at {event.arrival}, after its event at {event.t}"
            )
        self.live[event.request_id] = RequestLife(arrived=event)
        self.num_received += 1

    def _queued(self, event: RequestQueued, life: RequestLife) -> None:
        if life.queued:
            raise InvariantError(f"request {event.request_id!r} is queued twice")
        life.queued = True

    def _looked_up(self, event: PrefixLookup, life: RequestLife) -> None:
        life.num_matched_tokens = event.num_matched_tokens

    def _scheduled(self, event: RequestScheduled, life: RequestLife) -> None:
        if not life.queued:
            raise InvariantError(f"request {event.request_id!r} is scheduled before it was queued")
        if life.scheduled:
            raise InvariantError(f"request {event.request_id!r} is scheduled for the first time twice")
        if event.num_cached_tokens >= life.arrived.num_prompt_tokens:
            raise InvariantError(
                f"request {event.request_id!r} takes {event.num_cached_tokens} of its "
                f"{life.arrived.num_prompt_tokens} prompt tokens from the cache; the last one must be computed"
            )
        if life.num_matched_tokens not in (None, event.num_cached_tokens):
            raise InvariantError(
                f"request {event.request_id!r} takes {event.num_cached_tokens} tokens from the cache, its lookup found "
                f"{life.num_matched_tokens}"
            )
        life.scheduled = True
        life.num_cached_tokens = event.num_cached_tokens
        life.choices[0] = ChoiceLife(num_computed_tokens=event.num_cached_tokens, running=True)

    def _working(self, event: RequestChunk | RequestTokens | RequestFirstToken, life: RequestLife) -> ChoiceLife:
        """Return the choice that makes progress; a fork's first word makes it one."""
        choice = life.choices.get(event.index)
        if choice is not None and choice.running:
            return choice
        name = _name(event)
        if not life.scheduled:
            raise InvariantError(f"{name} makes progress before it was scheduled")
        if not 0 <= event.index < life.arrived.n:
            raise InvariantError(f"{name} doesn't exist: n is {life.arrived.n}")
        if choice is not None:
            raise InvariantError(f"{name} makes progress while it is {'finished' if choice.finished else 'preempted'}")
        choice = life.choices[event.index] = ChoiceLife(
            num_computed_tokens=life.arrived.num_prompt_tokens, running=True
        )
        return choice

    def _computed(self, event: RequestChunk, life: RequestLife) -> None:
        choice = self._working(event, life)
        if event.start != choice.num_computed_tokens:
            raise InvariantError(
                f"{_name(event)} computes a chunk from position {event.start}, but has {choice.num_computed_tokens} "
                f"computed tokens"
            )
        choice.num_computed_tokens += event.num_tokens

    def _got_first_token(self, event: RequestFirstToken, life: RequestLife) -> None:
        choice = self._working(event, life)
        if choice.num_output_tokens:
            raise InvariantError(f"{_name(event)} has its first token after {choice.num_output_tokens} others")

    def _got_tokens(self, event: RequestTokens, life: RequestLife) -> None:
        choice = self._working(event, life)
        num_known = life.arrived.num_prompt_tokens + choice.num_output_tokens
        if choice.num_computed_tokens < num_known - 1:
            raise InvariantError(
                f"{_name(event)} got a token with {choice.num_computed_tokens} of its {num_known} tokens computed"
            )
        num_output = choice.num_output_tokens = choice.num_output_tokens + event.num_tokens
        if num_output != event.num_output_tokens:
            raise InvariantError(
                f"{_name(event)} says it has {event.num_output_tokens} output tokens, but was given {num_output}"
            )
        if num_output > life.arrived.max_tokens:
            raise InvariantError(
                f"{_name(event)} has {num_output} output tokens, more than max_tokens {life.arrived.max_tokens}"
            )
        choice.num_computed_tokens = num_known + event.num_tokens - 1
        choice.has_progressed = True

    def _preempted(self, event: RequestPreempted, life: RequestLife) -> None:
        choice = life.choices.get(event.index)
        name = f"choice {event.index} of request {event.request_id!r}"
        if choice is None or not choice.running:
            raise InvariantError(f"{name} is preempted, but it isn't running")
        choice.num_preemptions += 1
        if event.num_preemptions != choice.num_preemptions:
            raise InvariantError(
                f"{name} says it was preempted {event.num_preemptions} times, the trace has {choice.num_preemptions}"
            )
        if not choice.has_progressed:
            self.num_futile_resumes += 1
        choice.running = False

    def _resumed(self, event: RequestResumed, life: RequestLife) -> None:
        choice = life.choices.get(event.index)
        name = f"choice {event.index} of request {event.request_id!r}"
        if choice is None or choice.running or choice.finished:
            raise InvariantError(f"{name} is resumed, but it isn't preempted")
        choice.running = True
        choice.has_progressed = False
        choice.num_computed_tokens = event.num_cached_tokens

    def _sequence_finished(self, event: SequenceFinished, life: RequestLife) -> None:
        choice = life.choices.get(event.index)
        name = f"choice {event.index} of request {event.request_id!r}"
        if choice is None or choice.finished:
            raise InvariantError(f"{name} finishes, but it is {'finished already' if choice else 'unknown'}")
        choice.finished, choice.running = True, False
        if sum(each.finished for each in life.choices.values()) == life.arrived.n:
            self._complete.add(event.request_id)

    def _has_ended(self, event: Terminal, life: RequestLife) -> None:
        tag = str(event.__struct_config__.tag)
        name = f"request {event.request_id!r}"
        if isinstance(event, RequestRejected) and life.scheduled:
            raise InvariantError(f"{name} is rejected after it was scheduled")
        if isinstance(event, RequestFinished):
            num_finished = sum(choice.finished for choice in life.choices.values())
            if num_finished != life.arrived.n:
                raise InvariantError(f"{name} finishes with {num_finished} of its {life.arrived.n} choices finished")
            if event.num_cached_tokens != life.num_cached_tokens:
                raise InvariantError(
                    f"{name} says {event.num_cached_tokens} cached tokens, was scheduled with {life.num_cached_tokens}"
                )
        self._complete.discard(event.request_id)
        self._last_lives[event.request_id] = self.live.pop(event.request_id)
        self.num_ended[tag] += 1
        self._ended[event.request_id] = tag
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]


def _name(event: RequestChunk | RequestTokens | RequestFirstToken) -> str:
    return f"choice {event.index} of request {event.request_id!r}"
