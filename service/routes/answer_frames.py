"""The bytes of one streamed answer, made as its tokens come; a failure becomes its last frame."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from engine.errors import PellucidError, RequestFailedError
from service.errors import encode_error
from service.generation import Delta, Generation
from service.protocol.answer import Answer
from service.sse import data_frame

logger = logging.getLogger("pellucid.requests")

OnFirstSent = Callable[[str, float], None]
"""Told the id of an engine request, and when its first text was handed to the transport (monotonic seconds)."""


class AnswerFrames:
    """See `service.token_stream.Frames`.

    Args:
        answer: renders.
        generation: entered; its deltas are taken here.
        request_ids: of the engine requests.
        error_id: the request id that an error frame names.
        extras: asked for timings when the last frames are made; None when nobody wants them.
        on_first_sent: see there.
    """

    def __init__(
        self,
        answer: Answer,
        generation: Generation,
        request_ids: Sequence[str],
        *,
        error_id: str,
        extras: Callable[[], Mapping[str, Any]] | None,
        on_first_sent: OnFirstSent,
    ) -> None:
        self._answer = answer
        self._generation = generation
        self._unsent = set(request_ids)
        self._error_id = error_id
        self._extras = extras
        self._on_first_sent = on_first_sent
        self._opening = answer.opening()
        self._taken: Sequence[Delta] = ()
        self._finish: Delta | None = None  # kept back until the first text is out, whose moment the timings name
        self.is_over = False

    def listen(self, on_ready: Callable[[], None]) -> None:
        self._generation.listen(on_ready)

    def take(self) -> bytes | None:
        if self._opening:
            opening, self._opening = self._opening, b""
            return opening
        if self.is_over:
            return None
        try:
            if self._finish is not None:
                self.is_over = True
                return self._last([self._finish])
            self._taken = deltas = self._generation.take()
            if not deltas:
                return None
            if not self._generation.is_complete:
                return b"".join([self._answer.frames(delta, {}) for delta in deltas])
            if self._extras is not None and any(delta.text and delta.request_id in self._unsent for delta in deltas):
                return self._all_but_the_finish(deltas)
            self.is_over = True
            return self._last(deltas)
        except PellucidError as error:
            logger.warning("request %s ended with %s: %s", self._error_id, error.error_type, error.message)
            return self._broken_off(error)
        except Exception:
            logger.exception("request %s failed", self._error_id)
            return self._broken_off(RequestFailedError("the server failed"))

    def sent(self, t: float) -> None:
        if self._unsent:
            for request_id in {delta.request_id for delta in self._taken if delta.text or delta.finish_reason}:
                if request_id in self._unsent:
                    self._unsent.discard(request_id)
                    self._on_first_sent(request_id, t)

    def _all_but_the_finish(self, deltas: Sequence[Delta]) -> bytes:
        *others, last = deltas
        self._finish = msgspec.structs.replace(
            last, text="", token_ids=[], text_offsets=(), logprobs=(), prompt_logprobs=()
        )
        text = msgspec.structs.replace(last, finish_reason="", stop_reason=None)
        return b"".join([self._answer.frames(delta, {}) for delta in (*others, text)])

    def _last(self, deltas: Sequence[Delta]) -> bytes:
        answer, extras = self._answer, self._extras() if self._extras is not None else {}
        frames = [answer.frames(delta, {}) for delta in deltas[:-1]]
        frames.append(answer.frames(deltas[-1], extras))
        frames.append(answer.closing(self._generation.usage, extras))
        return b"".join(frames)

    def _broken_off(self, error: PellucidError) -> bytes:
        self.is_over = True
        self._taken = ()
        return data_frame(encode_error(error, request_id=self._error_id))
