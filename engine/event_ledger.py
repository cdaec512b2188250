"""What the client knows of one engine life's event stream, so that it can close the stream when the engine can't.

The rule. Every life of the engine is one gapless stream that starts at seq 1, ends with `engine_stopped` or
`engine_failed`, and in which every request has exactly one terminal event. An engine that dies, or is killed, can't
write its last events, so the client, who has seen all it ever said, writes them in its place, with seq going on from
the last one received: for each request that was sent and has no terminal event, `arrived` if the engine had not said
so, then `failed` (`aborted`, when it was killed because it did not end in time at shutdown); at the end `engine_failed`
with `lost`. Whoever projects the stream needs no second path for a dead engine; its KV blocks are gone with its
process, and the next life's `engine_started` opens a new stream at seq 1.
"""

from collections.abc import Iterable, Sequence

from engine.clock import Clock
from engine.events import (
    EngineFailed,
    EngineStopped,
    Event,
    EventLog,
    RequestAborted,
    RequestArrived,
    RequestFailed,
    RequestTokens,
)
from engine.sequence import EngineRequest

_LAST = frozenset((EngineStopped, EngineFailed))
MAX_UNREAD = 4_096  # events: a moment's work, and little memory


class _Sent:
    """A request that the engine has been sent and has not ended; no message before number `since` is about it."""

    __slots__ = ("has_arrived", "num_output_tokens", "request", "since")

    def __init__(self, request: EngineRequest, since: int) -> None:
        self.request = request
        self.since = since
        self.has_arrived = False
        self.num_output_tokens = 0


class EventLedger:
    """Follows one life's events, which it reads only when it must, or when many have come.

    Args:
        clock: stamps the events written in the engine's place.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, _Sent] = {}
        self._unread: list[Sequence[Event]] = []
        self._num_unread_events = 0
        self._num_read = 0  # messages
        self._last_seq = EventLog.FIRST_SEQ - 1
        self._last_step = 0
        self._has_ended = False

    @property
    def num_unended(self) -> int:
        """Requests sent and not ended by a terminal event."""
        return len(self._sent)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._sent

    def sent(self, request: EngineRequest) -> None:
        """Note that a request is on its way to the engine."""
        self._sent[request.request_id] = _Sent(request, self._num_read + len(self._unread))

    def seen(self, events: Sequence[Event], ended: Iterable[str]) -> None:
        """Note what the engine said with one message.

        Args:
            events: of the message.
            ended: ids of the requests whose terminal event is among them.
        """
        for request_id in ended:
            self._sent.pop(request_id, None)
        if events:
            self._unread.append(events)
            self._num_unread_events += len(events)
            if self._num_unread_events > MAX_UNREAD:
                self._read()

    def _read(self) -> None:
        """Take in the events of the messages that have only been put aside."""
        for number, events in enumerate(self._unread, self._num_read):
            for event in events:
                if isinstance(event, RequestTokens):  # most of what comes while decoding
                    sent = self._sent.get(event.request_id)
                    if sent is not None and sent.since <= number:
                        sent.num_output_tokens += event.num_tokens
                elif isinstance(event, RequestArrived):
                    sent = self._sent.get(event.request_id)
                    if sent is not None and sent.since <= number:
                        sent.has_arrived = True
                elif type(event) in _LAST:
                    self._has_ended = True
            self._last_seq, self._last_step = events[-1].seq, events[-1].step
        self._num_read += len(self._unread)
        self._unread.clear()
        self._num_unread_events = 0

    def close(self, reason: str, *, error_type: str) -> Sequence[Event]:
        """Return the events that end the stream after the engine was lost; [] when it ended in order.

        Args:
            reason: what happened, in one line.
            error_type: the label of the failed requests; "" when the engine was killed at shutdown, so
                that they are `aborted`.
        """
        self._read()
        log = EventLog(self._clock, first_seq=self._last_seq + 1)
        log.step = self._last_step
        for request_id, sent in self._sent.items():
            if not sent.has_arrived:
                emit_arrived(log, sent.request)
            if error_type:
                log.emit(
                    RequestFailed,
                    request_id=request_id,
                    error_type=error_type,
                    message=reason,
                    num_output_tokens=sent.num_output_tokens,
                )
            else:
                log.emit(RequestAborted, request_id=request_id, reason=reason, num_output_tokens=sent.num_output_tokens)
        has_begun = bool(self._sent) or self._last_seq >= EventLog.FIRST_SEQ
        self._sent.clear()
        if has_begun and not self._has_ended:
            log.emit(EngineFailed, error=reason, lost=True)
        self._has_ended = True
        return log.drain()


def emit_arrived(log: EventLog, request: EngineRequest) -> None:
    """Say that a request arrived, as the engine itself would have."""
    log.emit(
        RequestArrived,
        request_id=request.request_id,
        arrival=request.arrival,
        num_prompt_tokens=len(request.prompt_token_ids),
        max_tokens=request.params.max_tokens,
        n=request.params.n,
        priority=request.priority,
        salted=bool(request.cache_salt),
    )
