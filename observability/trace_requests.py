"""The life of every request rebuilt from events alone: its order, its computed tokens, its one end."""

from dataclasses import dataclass, field

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
from observability.trace_block import InvariantError

Terminal = RequestRejected | RequestFinished | RequestFailed | RequestAborted


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
        ended: terminal event type by request id.
        num_received: `arrived` events.
        num_futile_resumes: resumed choices that were preempted again before they made a token.
    """

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self.live: dict[str, RequestLife] = {}
        self.ended: dict[str, str] = {}
        self._last_lives: dict[str, RequestLife] = {}
        self._complete: set[str] = set()
        self.num_received = 0
        self.num_futile_resumes = 0

    def apply(self, event: RequestEvent) -> None:
        """Check one request event against the events before it; raises InvariantError."""
        if isinstance(event, RequestArrived):
            self._arrived(event)
            return
        life = self.live.get(event.request_id)
        if life is None:
            if event.request_id in self.ended:
                raise InvariantError(
                    f"request {event.request_id!r} got an event after it ended with `{self.ended[event.request_id]}`"
                )
            if self._from_start:
                raise InvariantError(f"request {event.request_id!r} got an event before it arrived")
            return
        if isinstance(event, RequestRejected | RequestFinished | RequestFailed | RequestAborted):
            self._ended(event, life)
        elif isinstance(event, RequestQueued):
            if life.queued:
                raise InvariantError(f"request {event.request_id!r} is queued twice")
            life.queued = True
        elif isinstance(event, PrefixLookup):
            life.num_matched_tokens = event.num_matched_tokens
        elif isinstance(event, RequestScheduled):
            self._scheduled(event, life)
        elif isinstance(event, RequestChunk | RequestTokens | RequestFirstToken):
            self._worked(event, life)
        elif isinstance(event, RequestPreempted):
            self._preempted(event, life)
        elif isinstance(event, RequestResumed):
            self._resumed(event, life)
        elif isinstance(event, SequenceFinished):
            self._sequence_finished(event, life)

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
        if event.request_id in self.live or event.request_id in self.ended:
            raise InvariantError(f"request {event.request_id!r} arrived twice")
        if event.arrival > event.t:
            raise InvariantError(
                f"request {event.request_id!r} arrived at {event.arrival}, after its event at {event.t}"
            )
        self.live[event.request_id] = RequestLife(arrived=event)
        self.num_received += 1

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

    def _worked(self, event: RequestChunk | RequestTokens | RequestFirstToken, life: RequestLife) -> None:
        name = f"choice {event.index} of request {event.request_id!r}"
        if not life.scheduled:
            raise InvariantError(f"{name} makes progress before it was scheduled")
        if event.index >= life.arrived.n:
            raise InvariantError(f"{name} doesn't exist: n is {life.arrived.n}")
        num_prompt = life.arrived.num_prompt_tokens
        fork = ChoiceLife(num_computed_tokens=num_prompt, running=True)
        choice = life.choices.setdefault(event.index, fork)
        if not choice.running:
            state = "finished" if choice.finished else "preempted"
            raise InvariantError(f"{name} makes progress while it is {state}")
        if isinstance(event, RequestChunk):
            if event.start != choice.num_computed_tokens:
                raise InvariantError(
                    f"{name} computes a chunk from position {event.start}, but has {choice.num_computed_tokens} "
                    f"computed tokens"
                )
            choice.num_computed_tokens += event.num_tokens
        elif isinstance(event, RequestFirstToken):
            if choice.num_output_tokens:
                raise InvariantError(f"{name} has its first token after {choice.num_output_tokens} others")
        else:
            self._got_tokens(event, choice, name, life)

    def _got_tokens(self, event: RequestTokens, choice: ChoiceLife, name: str, life: RequestLife) -> None:
        num_known = life.arrived.num_prompt_tokens + choice.num_output_tokens
        if choice.num_computed_tokens < num_known - 1:
            raise InvariantError(
                f"{name} got a token with {choice.num_computed_tokens} of its {num_known} tokens computed"
            )
        choice.num_output_tokens += event.num_tokens
        if choice.num_output_tokens != event.num_output_tokens:
            raise InvariantError(
                f"{name} says it has {event.num_output_tokens} output tokens, but was given {choice.num_output_tokens}"
            )
        if choice.num_output_tokens > life.arrived.max_tokens:
            raise InvariantError(
                f"{name} has {choice.num_output_tokens} output tokens, more than max_tokens {life.arrived.max_tokens}"
            )
        choice.num_computed_tokens = life.arrived.num_prompt_tokens + choice.num_output_tokens - 1
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

    def _ended(self, event: Terminal, life: RequestLife) -> None:
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
        self.ended[event.request_id] = tag
