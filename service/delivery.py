"""How an answer is handed to the transport: what slow readers held up, and when the last byte was out."""

from collections.abc import Sequence

from service.ports import Recorder

# A write that takes longer was held up by its reader: copying a frame into the socket takes a twentieth of it.
BLOCKED_S = 0.001


class Delivery:
    """Of one call's answer; a `service.sse.Transfer`.

    Args:
        recorder: told of writes that were held up.
        request_ids: the engine requests that the answer is made of.

    Attributes:
        completed: monotonic seconds when the last byte was handed over, None before.
    """

    def __init__(self, recorder: Recorder, request_ids: Sequence[str]) -> None:
        self._recorder = recorder
        self._request_ids = request_ids
        self.completed: float | None = None

    def wrote(self, start: float, end: float, *, is_last: bool) -> None:
        """Take note of a write."""
        if end - start >= BLOCKED_S:
            self._recorder.send_blocked(self._request_ids, start, end)
        if is_last:
            self.completed = end
