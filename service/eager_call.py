"""Begin a coroutine here and now, without a task; most calls of an ASGI server's `send` never have to wait."""

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any


class RestOfCall:
    """What is left of a coroutine that had to wait: to be awaited once, or closed.

    Args:
        coroutine: suspended.
        waits_for: what it yielded.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def close(self) -> None:
        """Give it up."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        try:
            while True:
                yield waits_for
                waits_for = self._coroutine.send(None)
        except StopIteration:
            return
        finally:
            self._coroutine.close()


def call_now(call: Awaitable[None]) -> RestOfCall | None:
    """Run a coroutine as far as it goes; return its rest if it has to wait, else None. Raises what it raises.

    It runs outside of any task: what looks at `asyncio.current_task()` has no place in it.
    """
    assert isinstance(call, Coroutine), f"a coroutine is needed, got {type(call).__name__}"
    try:
        waits_for = call.send(None)
    except StopIteration:
        return None
    return RestOfCall(call, waits_for)
