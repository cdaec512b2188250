"""Do something for a client only as long as the client is there."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has left; what it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_disconnected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return what `work` returns; cancel it, wait for its clean-up and raise ClientDisconnect if the client leaves."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect()
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.wait((task, watcher))
