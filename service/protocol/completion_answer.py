"""Text completions on the wire: chunks while they come, one body at the end, with the prompt echoed on request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.messages import TokenLogprobs
from service.generation import Delta, Usage
from service.protocol.answer import AnswerIdentity, encode_json, usage_object
from service.protocol.logprobs import CompletionLogprobs, TokenSpelling
from service.sse import DONE, data_frame

KIND = "text_completion"


@dataclass(frozen=True)
class EchoedPrompt:
    """One prompt as it is shown: `text` and where in it each token begins; both empty when it isn't echoed."""

    token_ids: Sequence[int]
    text: str = ""
    text_offsets: Sequence[int] = ()


@dataclass(frozen=True)
class CompletionReporting:
    """What the client wants to see besides the text.

    Attributes:
        n: choices per prompt.
        prompts: all prompts of the call.
        echo: the prompt's text comes before the choice's own.
        logprobs: report them, with those of an echoed prompt.
        prompt_logprobs: report them in a field of their own.
        token_ids: report them.
        usage: send a usage chunk at the end of a stream.
    """

    n: int
    prompts: Sequence[EchoedPrompt]
    echo: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    token_ids: bool = False
    usage: bool = False


class _Choice:
    """What is gathered of one choice and not yet sent."""

    def __init__(self, prompt: EchoedPrompt, spelling: TokenSpelling) -> None:
        self.prompt = prompt
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs = CompletionLogprobs(spelling)
        self.prompt_logprobs: list[TokenLogprobs] = []
        self.echo_due = True
        self.finish_reason = ""
        self.stop_reason: str | int | None = None


class CompletionAnswer:
    """See `service.protocol.answer.Answer`. Prompt logprobs come once per prompt and are kept for its `n` choices."""

    def __init__(self, identity: AnswerIdentity, spelling: TokenSpelling, reporting: CompletionReporting) -> None:
        self._identity = identity
        self._spelling = spelling
        self._reporting = reporting
        self._choices = [_Choice(prompt, spelling) for prompt in reporting.prompts for _ in range(reporting.n)]
        self._prompt_entries: list[list[TokenLogprobs]] = [[] for _ in reporting.prompts]
        self._is_plain = not (reporting.echo or reporting.logprobs or reporting.prompt_logprobs or reporting.token_ids)
        head = encode_json(identity.head(KIND))[:-1]
        self._before = [
            b"data: " + head + b',"choices":[{"index":%d,"text":' % index for index in range(len(self._choices))
        ]
        self._after = b',"logprobs":null,"finish_reason":null}]}\n\n'

    def opening(self) -> bytes:
        return b""

    def frames(self, delta: Delta, extras: Mapping[str, Any]) -> bytes:
        if self._is_plain:
            frame = self._text_frame(delta.index, delta.text) if delta.text else b""
        else:
            frame = self._rich_frame(delta)
        return frame + self._finish_frame(delta, extras) if delta.finish_reason else frame

    def closing(self, usage: Usage, extras: Mapping[str, Any]) -> bytes:
        return (self._chunk([], usage=usage_object(usage), **extras) if self._reporting.usage else b"") + DONE

    def filler(self) -> bytes:
        return self._text_frame(0, "")

    def gather(self, delta: Delta) -> None:
        choice = self._choices[delta.index]
        self._add(choice, delta)
        choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason

    def body(self, usage: Usage, extras: Mapping[str, Any]) -> bytes:
        choices = []
        for index, choice in enumerate(self._choices):
            whole = self._take(index, choice, choice.finish_reason)
            if choice.stop_reason is not None:
                whole["stop_reason"] = choice.stop_reason
            choices.append(whole)
        return encode_json({**self._identity.head(KIND), "choices": choices, "usage": usage_object(usage), **extras})

    def _add(self, choice: _Choice, delta: Delta) -> None:
        if delta.prompt_logprobs:
            self._prompt_entries[delta.index // self._reporting.n] += delta.prompt_logprobs
        shift = len(choice.prompt.text) if self._reporting.echo else 0
        choice.text += delta.text
        choice.token_ids += delta.token_ids
        for entry, offset in zip(delta.logprobs, delta.text_offsets, strict=False):
            choice.logprobs.add(entry, text_offset=shift + offset)

    def _rich_frame(self, delta: Delta) -> bytes:
        choice = self._choices[delta.index]
        self._add(choice, delta)
        has_echo = self._reporting.echo and choice.echo_due and bool(delta.token_ids)
        if not (choice.text or has_echo or (delta.finish_reason and choice.token_ids)):
            return b""
        return self._chunk([self._take(delta.index, choice, None)])

    def _take(self, index: int, choice: _Choice, finish_reason: str | None) -> dict[str, Any]:
        """Return what is gathered of a choice as JSON, the echo first, and begin anew."""
        report = self._reporting
        prompt_entries = self._prompt_entries[index // report.n]
        taken: dict[str, Any] = {"index": index, "text": choice.text}
        logprobs = choice.logprobs.take() if report.logprobs else None
        if choice.echo_due and report.echo:
            taken["text"] = choice.prompt.text + choice.text
            if logprobs is not None:
                logprobs = _joined(self._echoed_logprobs(choice.prompt, prompt_entries), logprobs)
        taken["logprobs"] = logprobs
        taken["finish_reason"] = finish_reason
        if choice.echo_due and report.prompt_logprobs:
            taken["prompt_logprobs"] = self._spelling.prompt_entries(prompt_entries)
        if report.token_ids:
            taken["token_ids"] = choice.token_ids
            if choice.echo_due:
                taken["prompt_token_ids"] = list(choice.prompt.token_ids)
        choice.text, choice.token_ids, choice.echo_due = "", [], False
        return taken

    def _echoed_logprobs(self, prompt: EchoedPrompt, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
        echoed = CompletionLogprobs(self._spelling)
        offsets = prompt.text_offsets
        echoed.add_first(prompt.token_ids[0], text_offset=offsets[0])
        for entry, offset in zip(entries, offsets[1:], strict=False):
            echoed.add(entry, text_offset=offset)
        return echoed.take()

    def _text_frame(self, index: int, text: str) -> bytes:
        return self._before[index] + encode_json(text) + self._after

    def _finish_frame(self, delta: Delta, extras: Mapping[str, Any]) -> bytes:
        choice = {"index": delta.index, "text": "", "logprobs": None, "finish_reason": delta.finish_reason}
        if delta.stop_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        return self._chunk([choice], **({} if self._reporting.usage else extras))

    def _chunk(self, choices: list[dict[str, Any]], **extras: Any) -> bytes:
        return data_frame(encode_json({**self._identity.head(KIND), "choices": choices, **extras}))


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {name: [*first[name], *second[name]] for name in first}
