"""Chat completions on the wire: chunks while they come, one body at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.messages import TokenLogprobs
from service.generation import Delta, Usage
from service.protocol.answer import AnswerIdentity, encode_json, usage_object
from service.protocol.logprobs import TokenSpelling
from service.sse import DONE, data_frame

CHUNK = "chat.completion.chunk"
BODY = "chat.completion"


@dataclass(frozen=True)
class ChatReporting:
    """What the client wants to see besides the text.

    Attributes:
        num_choices: `n`.
        logprobs: report them.
        token_ids: report them; `prompt_token_ids` are those to show then.
        prefix: text that stands before each choice's own (`echo` of the last message).
        usage: send a usage chunk at the end of a stream.
    """

    num_choices: int
    logprobs: bool = False
    token_ids: bool = False
    prompt_token_ids: Sequence[int] = ()
    prefix: str = ""
    usage: bool = False


@dataclass
class _Choice:
    """What is gathered of one choice: for the next chunk of a stream, or for the whole body."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: str | int | None = None

    def add(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


class ChatAnswer:
    """See `service.protocol.answer.Answer`."""

    def __init__(self, identity: AnswerIdentity, spelling: TokenSpelling, reporting: ChatReporting) -> None:
        self._identity = identity
        self._spelling = spelling
        self._reporting = reporting
        self._is_plain = not (reporting.logprobs or reporting.token_ids)
        self._choices = [_Choice() for _ in range(reporting.num_choices)]
        self._prompt_logprobs: list[TokenLogprobs] = []
        head = encode_json(identity.head(CHUNK))[:-1]
        self._before = [
            b"data: " + head + b',"choices":[{"index":%d,"delta":{"content":' % index
            for index in range(reporting.num_choices)
        ]
        self._after = b'},"logprobs":null,"finish_reason":null}]}\n\n'

    def opening(self) -> bytes:
        frames = [self._role_frame(index) for index in range(self._reporting.num_choices)]
        if self._reporting.prefix:
            frames += [self._text_frame(index, self._reporting.prefix) for index in range(self._reporting.num_choices)]
        return b"".join(frames)

    def frames(self, delta: Delta, extras: Mapping[str, Any]) -> bytes:
        if delta.prompt_logprobs:
            self._prompt_logprobs += delta.prompt_logprobs
        if self._is_plain and not self._prompt_logprobs:
            frame = self._text_frame(delta.index, delta.text) if delta.text else b""
        else:
            frame = self._rich_frame(delta)
        return frame + self._finish_frame(delta, extras) if delta.finish_reason else frame

    def closing(self, usage: Usage, extras: Mapping[str, Any]) -> bytes:
        return (self._chunk([], usage=usage_object(usage), **extras) if self._reporting.usage else b"") + DONE

    def filler(self) -> bytes:
        return self._text_frame(0, "")

    def gather(self, delta: Delta) -> None:
        self._choices[delta.index].add(delta)
        self._prompt_logprobs += delta.prompt_logprobs

    def body(self, usage: Usage, extras: Mapping[str, Any]) -> bytes:
        body = self._identity.head(BODY)
        body["choices"] = [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)]
        body["usage"] = usage_object(usage)
        if self._prompt_logprobs:
            body["prompt_logprobs"] = self._spelling.prompt_entries(self._prompt_logprobs)
        if self._reporting.token_ids:
            body["prompt_token_ids"] = list(self._reporting.prompt_token_ids)
        return encode_json({**body, **extras})

    def _whole_choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        text = self._reporting.prefix + "".join(choice.texts)
        whole: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(choice) if self._reporting.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if choice.stop_reason is not None:
            whole["stop_reason"] = choice.stop_reason
        if self._reporting.token_ids:
            whole["token_ids"] = choice.token_ids
        return whole

    def _logprobs(self, choice: _Choice) -> dict[str, Any]:
        return {"content": self._spelling.chat_entries(choice.logprobs), "refusal": None}

    def _role_frame(self, index: int) -> bytes:
        extras: dict[str, Any] = {}
        if self._reporting.token_ids and index == 0:
            extras["prompt_token_ids"] = list(self._reporting.prompt_token_ids)
        return self._chunk([_stream_choice(index, {"role": "assistant", "content": ""})], **extras)

    def _text_frame(self, index: int, text: str) -> bytes:
        return self._before[index] + encode_json(text) + self._after

    def _rich_frame(self, delta: Delta) -> bytes:
        """Return a chunk with what was held back since the last one; ids and logprobs wait for their text."""
        held = self._choices[delta.index]
        held.add(delta)
        if not delta.text and not (delta.finish_reason and held.token_ids):
            return b""
        choice = _stream_choice(delta.index, {"content": "".join(held.texts)})
        if self._reporting.logprobs:
            choice["logprobs"] = self._logprobs(held)
        if self._reporting.token_ids:
            choice["token_ids"] = held.token_ids
        extras: dict[str, Any] = {}
        if self._prompt_logprobs:
            extras["prompt_logprobs"] = self._spelling.prompt_entries(self._prompt_logprobs)
            self._prompt_logprobs = []
        self._choices[delta.index] = _Choice()
        return self._chunk([choice], **extras)

    def _finish_frame(self, delta: Delta, extras: Mapping[str, Any]) -> bytes:
        choice = _stream_choice(delta.index, {}, delta.finish_reason)
        if delta.stop_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        return self._chunk([choice], **({} if self._reporting.usage else extras))

    def _chunk(self, choices: list[dict[str, Any]], **extras: Any) -> bytes:
        return data_frame(encode_json({**self._identity.head(CHUNK), "choices": choices, **extras}))


def _stream_choice(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
