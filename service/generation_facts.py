"""What a client asked for, in the names of the GenAI conventions; content only where the operator allows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from observability import genai
from observability.span_facts import AttributeValue
from service.generation import Delta
from service.protocol.fields import GenerationFields

Message = Mapping[str, object]


def request_attributes(request: GenerationFields) -> dict[str, AttributeValue]:
    """Return the span attributes of the parameters that the client gave."""
    given: dict[str, AttributeValue | None] = {
        genai.REQUEST_STREAM: True if request.stream else None,
        genai.REQUEST_CHOICE_COUNT: request.n if request.n != 1 else None,
        genai.REQUEST_MAX_TOKENS: request.asked_tokens,
        genai.REQUEST_TEMPERATURE: request.temperature,
        genai.REQUEST_TOP_P: request.top_p,
        genai.REQUEST_TOP_K: request.top_k,
        genai.REQUEST_FREQUENCY_PENALTY: request.frequency_penalty,
        genai.REQUEST_PRESENCE_PENALTY: request.presence_penalty,
        genai.REQUEST_SEED: request.seed,
        genai.REQUEST_STOP_SEQUENCES: request.stop_list or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def message(role: str, text: str, **more: object) -> Message:
    """Return one message in the form of the convention."""
    return {"role": role, "parts": [{"type": "text", "content": text}], **more}


def encode_messages(messages: Sequence[Message]) -> str:
    """Return messages as the JSON that goes into an attribute; "" for none."""
    return msgspec.json.encode(messages).decode() if messages else ""


@dataclass(slots=True)
class Transcript:
    """The text of an answer's choices, gathered while it is generated where content may be in spans."""

    _texts: dict[tuple[str, int], str] = field(default_factory=dict)
    _reasons: dict[tuple[str, int], str] = field(default_factory=dict)

    def add(self, deltas: Sequence[Delta]) -> None:
        """Take in what a step added."""
        for delta in deltas:
            key = (delta.request_id, delta.index)
            self._texts[key] = self._texts.get(key, "") + delta.text
            if delta.finish_reason:
                self._reasons[key] = delta.finish_reason

    def output_messages(self, request_id: str) -> str:
        """Return the choices of one engine request in the form of the convention; "" if nothing was gathered."""
        return encode_messages(
            [
                message("assistant", text, finish_reason=self._reasons.get(key, ""))
                for key, text in sorted(self._texts.items())
                if key[0] == request_id
            ]
        )
