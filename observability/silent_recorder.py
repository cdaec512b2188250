"""A recorder that records nothing, for measuring what recording costs."""

from collections.abc import Iterable, Sequence

from engine.events import Event
from observability.recorder import Recorder


class SilentRecorder(Recorder):
    """Takes everything in and keeps nothing; its answers are those of a server that nobody ever asked."""

    def consume(self, events: Sequence[Event]) -> None:
        """Drop them."""

    def request_opened(
        self, request_id: str, *, trace_id: str, route: str, model: str, stream: bool, arrival: float
    ) -> None:
        """Drop it."""

    def request_refused(self, request_id: str, error_type: str, message: str = "") -> None:
        """Drop it."""

    def request_abandoned(self, request_id: str, reason: str) -> None:
        """Drop it."""

    def rejected(self, error_type: str) -> None:
        """Drop it."""

    def request_encoded(self, request_id: str, t: float) -> None:
        """Drop it."""

    def answer_taken(
        self, request_id: str, start: float, end: float, *, detokenize_s: float = 0.0, finish_reason: str = ""
    ) -> None:
        """Drop it."""

    def send_blocked(self, request_ids: Iterable[str], start: float, end: float) -> None:
        """Drop it."""

    def sent_first(self, request_id: str, t: float) -> None:
        """Drop it."""

    def sent_last(self, request_id: str, t: float) -> None:
        """Drop it."""
