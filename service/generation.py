"""One API call while it runs: engine outputs in, deltas of its choices out, the same for streamed and whole answers.

Prompt        one engine request and how its text is assembled
Generation    takes the requests' outputs as they come, assembles text, finds stop strings, counts usage
Delta         what one choice gained: never half a character, never part of a stop string
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from engine.clock import Clock
from engine.errors import InvalidRequestError, PellucidError, RequestFailedError
from engine.messages import ChoiceOutput, TokenLogprobs
from engine.sequence import EngineRequest
from engine.text.output_text import TextAssembler
from service.errors import RequestCancelledError
from service.ports import Engine, OutputStream


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What one choice gained since its last delta.

    Attributes:
        request_id: of the engine request.
        index: of the choice over all prompts of the call: prompt * n + index within its request.
        text: safe to show.
        token_ids: of this delta's tokens; their text may still be held back.
        logprobs, text_offsets: one per token id; logprobs are empty unless asked for.
        prompt_logprobs: for prompt positions computed since, see ChoiceOutput.
        finish_reason: `stop` or `length` in the last delta of a choice, else "".
        stop_reason: the stop string or the asked-for stop token that ended it; None otherwise.
    """

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    text_offsets: tuple[int, ...]
    logprobs: Sequence[TokenLogprobs]
    prompt_logprobs: Sequence[TokenLogprobs]
    finish_reason: str = ""
    stop_reason: str | int | None = None


@dataclass(frozen=True)
class Prompt:
    """One engine request of a call; `assembler` makes the text state of one of its choices."""

    request: EngineRequest
    assembler: Callable[[], TextAssembler]


@dataclass(frozen=True)
class Usage:
    """Tokens of a whole call: each prompt counted once, completions over all choices."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class _Choice:
    """A choice that is not over yet, or the count of one that is."""

    __slots__ = ("assembler", "finish_reason", "finished", "index", "num_tokens")

    def __init__(self, index: int, assembler: TextAssembler) -> None:
        self.index = index
        self.assembler = assembler
        self.num_tokens = 0
        self.finish_reason = ""
        self.finished = False


class AnswerTaken(Protocol):
    """Told once of each request whose last outputs were turned into text, from `start` to `end` (monotonic seconds).

    `finish_reason` is what its client is told: `length` if any choice ran into it, else `stop`; "" if it broke off.
    """

    def __call__(
        self, request_id: str, start: float, end: float, *, detokenize_s: float, finish_reason: str
    ) -> None: ...


class Generation:
    """A running call, as an async context manager; leaving it early gives every request up in the engine.

    Args:
        engine: where the requests go.
        prompts: at least one.
        clock: measures what turning tokens into text takes.
        on_taken: told when a request's answer is complete here.
        on_deltas: sees what `deltas` yields, just before.

    Raises (from `deltas`, before or between deltas):
        InvalidRequestError: the engine refused a request.
        RequestFailedError: a fault of ours ended it.
        EngineUnavailableError: the engine is shutting down.
        RequestCancelledError: somebody else cancelled it.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Prompt],
        *,
        clock: Clock,
        on_taken: AnswerTaken,
        on_deltas: Callable[[Sequence[Delta]], None] | None = None,
    ) -> None:
        self._on_deltas = on_deltas
        self._engine = engine
        self._prompts = prompts
        self._now = clock.now
        self._on_taken = on_taken
        self._detokenize_s = dict.fromkeys((prompt.request.request_id for prompt in prompts), 0.0)
        self._streams: list[OutputStream] = []
        self._arrived: dict[OutputStream, None] = {}  # in the order in which they brought something
        self._on_ready: Callable[[], None] = _nothing
        self._choices: dict[str, list[_Choice]] = {}
        self._cached: dict[str, int] = {}
        self._num_open = 0
        self._exit = AsyncExitStack()
        first = 0
        for prompt in prompts:
            n = prompt.request.params.n
            self._choices[prompt.request.request_id] = [_Choice(first + i, prompt.assembler()) for i in range(n)]
            first += n
        self._num_open = first

    async def start(self) -> None:
        """Send the requests; whoever starts it must enter it next, which sees to its end.

        Raises:
            EngineUnavailableError, QueueFullError: the engine doesn't take them; none stays behind.
        """
        async with AsyncExitStack() as stack:
            for prompt in self._prompts:
                stream = self._engine.generate(prompt.request)
                self._streams.append(await stack.enter_async_context(aclosing(stream)))
                stream.listen(partial(self._note, stream))
            self._exit = stack.pop_all()

    async def __aenter__(self) -> "Generation":
        assert self._streams, "not started"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        async with self._exit:
            if kind is None and self.is_complete:
                await self._settle()

    @property
    def is_complete(self) -> bool:
        """Whether every choice has its finish reason."""
        return not self._num_open

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=sum(len(prompt.request.prompt_token_ids) for prompt in self._prompts),
            completion_tokens=sum(choice.num_tokens for choices in self._choices.values() for choice in choices),
            cached_tokens=sum(self._cached.values()),
        )

    def listen(self, on_ready: Callable[[], None]) -> None:
        """Have `on_ready` called whenever `take` has something to give, or to raise. It must not raise itself."""
        self._on_ready = on_ready

    def take(self) -> list[Delta]:
        """Return what has come of one request, [] when nothing has; raises what `deltas` raises."""
        arrived = self._arrived
        while arrived:
            stream = next(iter(arrived))
            del arrived[stream]
            outputs = stream.take_now()
            deltas = self._take_all(outputs) if outputs else []
            if deltas:
                if self._on_deltas is not None:
                    self._on_deltas(deltas)
                return deltas
        return []

    async def deltas(self) -> AsyncGenerator[list[Delta], None]:
        """Yield what each step added, until every choice has its finish reason."""
        something = asyncio.Event()
        self.listen(something.set)
        while self._num_open:
            something.clear()
            deltas = self.take()
            if deltas:
                yield deltas
            else:
                await something.wait()

    def _note(self, stream: OutputStream) -> None:
        self._arrived[stream] = None
        self._on_ready()

    def _take_all(self, outputs: Sequence[ChoiceOutput]) -> list[Delta]:
        """Turn what came of one request into deltas, and say when its answer is complete with them, or broken off."""
        start, num_open = self._now(), self._num_open
        request_id = outputs[0].request_id
        choices = self._choices[request_id]
        try:
            deltas = [self._take(choices[o.index], o) for o in outputs if not choices[o.index].finished]
        except PellucidError:
            spent_s = self._detokenize_s[request_id]
            self._on_taken(request_id, start, self._now(), detokenize_s=spent_s, finish_reason="")
            raise
        end = self._now()
        self._detokenize_s[request_id] += end - start
        if self._num_open < num_open and all(choice.finished for choice in choices):
            reason = "length" if any(choice.finish_reason == "length" for choice in choices) else "stop"
            spent_s = self._detokenize_s[request_id]
            self._on_taken(request_id, start, end, detokenize_s=spent_s, finish_reason=reason)
        return deltas

    def _take(self, choice: _Choice, output: ChoiceOutput) -> Delta:
        """Turn one output into a delta; a stop string found here ends the choice in the engine too."""
        reason = output.finish_reason
        if reason == "error":
            raise _refusal_or_failure(output)
        if reason == "abort":
            raise RequestCancelledError("the request was cancelled")
        if output.num_cached_tokens:
            self._cached[output.request_id] = output.num_cached_tokens
        ids, logprobs = output.token_ids, output.logprobs
        step = choice.assembler.push(ids, ends_with_stop_token=output.stop_token_id >= 0)
        num_used = len(step.text_offsets)
        choice.num_tokens = step.num_tokens_used
        text = step.text
        stop_reason: str | int | None = None
        if step.stopped:
            ids, logprobs = ids[:num_used], logprobs[:num_used]
            if not reason:
                self._engine.stop_choice(output.request_id, output.index, step.num_tokens_used)
            reason, stop_reason = "stop", step.stop_string
        elif reason:
            text += choice.assembler.finish()
            if output.stop_token_id >= 0 and self._was_asked_for(output):
                stop_reason = output.stop_token_id
        if reason:
            choice.finished = True
            choice.finish_reason = reason
            self._num_open -= 1
        return Delta(
            request_id=output.request_id,
            index=choice.index,
            text=text,
            token_ids=ids,
            text_offsets=step.text_offsets,
            logprobs=logprobs,
            prompt_logprobs=output.prompt_logprobs,
            finish_reason=reason,
            stop_reason=stop_reason,
        )

    def _was_asked_for(self, output: ChoiceOutput) -> bool:
        return any(
            output.stop_token_id in prompt.request.params.stop_token_ids
            for prompt in self._prompts
            if prompt.request.request_id == output.request_id
        )

    async def _settle(self) -> None:
        """Read on until the engine has ended what stop strings ended here, so that it isn't aborted instead."""
        self.listen(_nothing)
        try:
            for stream in self._streams:
                async for _ in stream:
                    pass
        except PellucidError:
            return  # the answer was complete; how the engine ended after it is in its events


def _nothing() -> None:
    """Stand in for a listener."""


def _refusal_or_failure(output: ChoiceOutput) -> PellucidError:
    if output.error_type == InvalidRequestError.error_type:
        return InvalidRequestError(output.error)
    return RequestFailedError(output.error or "the request failed")
