"""What the service needs of its neighbours, as types; the composition root brings the real ones, tests bring fakes."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from engine.client import EngineState
from engine.events import Event
from engine.messages import ChoiceOutput, EngineInfo
from engine.sequence import EngineRequest
from observability.event_tape import EventTape, Life
from observability.trace_header import TraceHeader


class OutputStream(Protocol):
    """Outputs of one request; closing it early gives the request up in the engine."""

    def __aiter__(self) -> AsyncIterator[list[ChoiceOutput]]: ...

    async def aclose(self) -> None: ...


class Engine(Protocol):
    """The part of engine.client.AsyncEngine that the service uses; see there."""

    info: EngineInfo | None

    @property
    def state(self) -> EngineState: ...

    @property
    def reason(self) -> str: ...

    def heartbeat_age(self) -> float: ...

    def generate(self, request: EngineRequest) -> OutputStream: ...

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> bool: ...

    def abort(self, request_id: str, reason: str) -> bool: ...

    async def reset_prefix_cache(self) -> int: ...

    async def drain(self, grace_s: float) -> int: ...


class Recorder(Protocol):
    """The part of observability.recorder.Recorder that the service uses; see there."""

    @property
    def tape(self) -> EventTape: ...

    def header(self, life: Life, *, num_dropped_events: int = 0) -> TraceHeader | None: ...

    def consume(self, events: Sequence[Event]) -> None: ...

    def request_opened(
        self, request_id: str, *, trace_id: str, route: str, model: str, stream: bool, arrival: float
    ) -> None: ...

    def request_refused(self, request_id: str, error_type: str, message: str = "") -> None: ...

    def request_abandoned(self, request_id: str, reason: str) -> None: ...

    def rejected(self, error_type: str) -> None: ...

    def sent_first(self, request_id: str, t: float) -> None: ...

    def sent_last(self, request_id: str, t: float) -> None: ...

    def stats(self, *, history_s: int = 60) -> dict[str, Any]: ...

    def requests(self) -> dict[str, list[dict[str, object]]]: ...

    def request(self, request_id: str) -> dict[str, object] | None: ...

    def steps(self, since: int = 0) -> list[dict[str, Any]]: ...


class Metrics(Protocol):
    """The part of observability.metrics.Metrics that the service uses; see there."""

    def render(self, accept: str = "") -> tuple[bytes, str]: ...

    def http_observed(self, route: str, method: str, status: int, seconds: float) -> None: ...
