"""What every answer of a generating route has: identity, usage; and the interface that routes render through."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from service.generation import Delta, Usage

encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class AnswerIdentity:
    """The same in every chunk of one answer.

    Attributes:
        answer_id: `chatcmpl-...` or `cmpl-...`.
        created: Unix seconds.
        model: the name the client asked for.
        fingerprint: changes with model, executor and dtype.
    """

    answer_id: str
    created: int
    model: str
    fingerprint: str

    def head(self, kind: str) -> dict[str, Any]:
        """Return the leading members of a body or chunk of this kind."""
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


class Answer(Protocol):
    """Renders one call's deltas: as frames while they come, or as one body at the end. One instance per call."""

    def opening(self) -> bytes:
        """Return the frames to send at once, before any token."""
        ...

    def frames(self, delta: Delta, extras: Mapping[str, Any]) -> bytes:
        """Return the frames for one delta; b"" while it is held back.

        `extras` (timings, with the last delta of a call) go into its finish chunk when no usage chunk will follow:
        nobody gets a chunk without choices who didn't ask for one.
        """
        ...

    def closing(self, usage: Usage, extras: Mapping[str, Any]) -> bytes:
        """Return the frames after the last finish reason: the usage chunk if asked for, with `extras`, and the end."""
        ...

    def filler(self) -> bytes:
        """Return a frame that says nothing."""
        ...

    def gather(self, delta: Delta) -> None:
        """Keep one delta for `body`."""
        ...

    def body(self, usage: Usage, extras: Mapping[str, Any]) -> bytes:
        """Return the whole answer."""
        ...


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return `usage` as JSON."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
