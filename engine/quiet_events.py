"""An event log that says only what the client can't do without, so that what the rest costs can be measured."""

from collections.abc import Sequence as Many

from engine.events import (
    TERMINAL_EVENTS,
    Choice,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    EventLog,
    RequestArrived,
)

_ENGINE = (EngineStarted, EngineStopped, EngineFailed)
NEEDED: frozenset[type[Event]] = frozenset((RequestArrived, *TERMINAL_EVENTS, *_ENGINE))


class QuietEventLog(EventLog):
    """Keeps the beginning and the end of requests and of the engine; drops the rest unnumbered."""

    def emit(self, kind: type[Event], /, **fields: object) -> None:
        if kind in NEEDED:
            super().emit(kind, **fields)

    def emit_token_each(self, choices: Many[Choice]) -> None:
        """Say nothing."""

    def emit_allocated(self, block_id: int, request_id: str, index: int, position: int) -> None:
        """Say nothing."""

    def emit_shared(self, block_id: int, request_id: str, index: int, position: int, ref_count: int) -> None:
        """Say nothing."""

    def emit_published(
        self, block_id: int, parent_block_id: int, block_hash: str, parent_hash: str, request_id: str
    ) -> None:
        """Say nothing."""

    def emit_released(self, block_id: int, request_id: str, index: int, ref_count: int) -> None:
        """Say nothing."""

    def emit_evicted(self, block_id: int, reason: str) -> None:
        """Say nothing."""

    def emit_freed(self, block_id: int) -> None:
        """Say nothing."""
