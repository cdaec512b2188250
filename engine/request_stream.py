"""The outputs of one request on their way from the engine's messages to their one consumer.

A consumer either waits (`async for`) or is called (`listen`, then `take_now`): being called costs no task switch for
each token.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType

from engine.errors import PellucidError
from engine.messages import ChoiceOutput


class RequestStream:
    """Holds what the consumer has not taken yet.

    Memory is bounded by what the request may produce (`n * max_tokens` tokens), however slow the consumer is: it holds
    token ids, not steps, once they are taken together.

    Args:
        num_choices: the request's `n`; the stream ends when so many choices have ended.

    Attributes:
        is_aborting: somebody other than the consumer has asked the engine to end it.
    """

    def __init__(self, num_choices: int) -> None:
        self.is_aborting = False
        self._open_choices = set(range(num_choices))
        self._pending: list[ChoiceOutput] = []
        self._error: PellucidError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._on_ready: Callable[[], None] | None = None

    def listen(self, on_ready: Callable[[], None] | None) -> None:
        """Call `on_ready` from now on whenever a message has brought something, or the stream has failed.

        It is called between other requests' outputs, so it must not raise. None ends it.
        """
        self._on_ready = on_ready

    def notify(self) -> None:
        """Call the listener: everything that one message brought has been put in."""
        if self._on_ready is not None:
            self._on_ready()

    @property
    def is_complete(self) -> bool:
        """Whether every choice has ended, or the request has failed; nothing more can come."""
        return not self._open_choices or self._error is not None

    def put(self, output: ChoiceOutput) -> bool:
        """Add one step's output; return False, and drop it, when that choice has ended already."""
        if output.index not in self._open_choices:
            return False
        if output.finish_reason:
            self._open_choices.discard(output.index)
        self._pending.append(output)
        self._wake()
        return True

    def fail(self, error: PellucidError) -> None:
        """End the stream with an error, raised after what is pending has been taken."""
        self._error = error
        self._wake()
        self.notify()

    def cut(self) -> None:
        """End the stream now and drop what is pending: nobody wants it, nobody is called any more."""
        self._on_ready = None
        self._open_choices.clear()
        self._pending.clear()
        self._wake()

    def take_now(self) -> list[ChoiceOutput]:
        """Return all outputs that there are, at most one per choice; [] when there are none. Raises the error after."""
        pending = self._pending
        if not pending:
            if self._error is not None:
                raise self._error
            return []
        self._pending = []
        return pending if len(pending) == 1 else join_outputs(pending)

    async def take(self) -> list[ChoiceOutput]:
        """Wait for outputs and return all there are, at most one per choice; [] at the end.

        Cancelling this loses nothing: the next call returns what came meanwhile.
        """
        if self._waiter is not None:
            raise RuntimeError("a stream has one consumer; it is waiting already")
        while not self._pending:
            if self._error is not None:
                raise self._error
            if not self._open_choices:
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take_now()

    async def take_or_stop(self) -> list[ChoiceOutput]:
        """Do as take() does, but raise StopAsyncIteration at the end."""
        outputs = await self.take()
        if not outputs:
            raise StopAsyncIteration
        return outputs

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def join_outputs(outputs: list[ChoiceOutput]) -> list[ChoiceOutput]:
    """Join several steps' outputs into one per choice, in the order in which choices first appear."""
    by_index: dict[int, list[ChoiceOutput]] = {}
    for output in outputs:
        by_index.setdefault(output.index, []).append(output)
    return [parts[0] if len(parts) == 1 else _join_parts(parts) for parts in by_index.values()]


def _join_parts(parts: list[ChoiceOutput]) -> ChoiceOutput:
    last = parts[-1]
    return ChoiceOutput(
        request_id=last.request_id,
        index=last.index,
        token_ids=[token_id for part in parts for token_id in part.token_ids],
        logprobs=[entry for part in parts for entry in part.logprobs] or (),
        prompt_logprobs=[entry for part in parts for entry in part.prompt_logprobs] or (),
        finish_reason=last.finish_reason,
        stop_token_id=last.stop_token_id,
        error=last.error,
        error_type=last.error_type,
        num_cached_tokens=max(part.num_cached_tokens for part in parts),
    )


class Generation:
    """An async iterator of `list[ChoiceOutput]` that gives its request up when closed; AsyncEngine.generate() makes it.

    Closing happens in any of these ways, all synchronous at heart, so that no cancellation can come in between:
    `async with`, `aclosing()`, `close()`, or dropping the last reference. Cancelling one `__anext__` (a time-out used
    for keep-alive comments, say) is not closing. After the end, closing does nothing.

    Args:
        stream: where the outputs come from.
        on_close: gives the request up.
    """

    def __init__(self, stream: RequestStream, on_close: Callable[[], None]) -> None:
        self._is_closed = False
        self._stream = stream
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> "Generation":
        return self

    def __anext__(self) -> Coroutine[None, None, list[ChoiceOutput]]:
        return self._stream.take_or_stop()  # holds no reference to self: a cancelled `async for` lets go at once

    def listen(self, on_ready: Callable[[], None]) -> None:
        """Be called instead of waiting; see RequestStream."""
        self._stream.listen(on_ready)

    def take_now(self) -> list[ChoiceOutput]:
        """Return what has come; see RequestStream."""
        return self._stream.take_now()

    @property
    def is_complete(self) -> bool:
        """Whether nothing more can come, though something may be left to take."""
        return self._stream.is_complete

    def close(self) -> None:
        """Give the request up if it is not complete; further iteration ends at once."""
        if not self._is_closed:
            self._is_closed = True
            self._stream.listen(None)
            self._on_close()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> "Generation":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_closed and not self._stream.is_complete and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_close)  # the collector runs on any thread
