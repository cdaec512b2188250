"""One poller of the service's state for any number of watching browsers."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec

from dashboard.whole_answer import read_whole

Frame = dict[str, Any]

STATS_FORM = ("pellucid-stats", 1)

# Rows of history asked for: all that the service keeps when a browser joins, then enough for one that lags.
JOIN_HISTORY_S = 300
TICK_HISTORY_S = 60


class LiveFeed:
    """Polls `/stats` and `/ready` while anyone watches, and hands every watcher the newest frame.

    A frame is {connected, error, ready, stats}. A watcher that is slow skips frames but no history rows: each gets the
    rows after the last one it was given.

    Args:
        client: bound to the service's base URL.
        interval_s: between two polls.
    """

    def __init__(self, client: httpx.AsyncClient, *, interval_s: float = 1.0) -> None:
        self._client = client
        self._interval_s = interval_s
        self._frame = _down("not asked yet")
        self._history_s = JOIN_HISTORY_S
        self._changed = asyncio.Condition()
        self._number = 0
        self._closed = False
        self._poller: asyncio.Task[None] | None = None
        self.num_watchers = 0

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events until the feed is closed; polling goes on while at least one watches."""
        self.num_watchers += 1
        self._history_s = JOIN_HISTORY_S
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        seen = self._number
        last_row = 0
        try:
            yield b"retry: 1000\n\n"
            while (newest := await self._newer_than(seen)) is not None:
                seen, frame = newest
                frame, last_row = _rows_after(frame, last_row)
                yield b"data: " + msgspec.json.encode(frame) + b"\n\n"
        finally:
            self.num_watchers -= 1
            if self.num_watchers == 0 and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def _newer_than(self, seen: int) -> tuple[int, Frame] | None:
        """Wait for a frame after number `seen`; None when the feed is closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or self._number > seen)
            return None if self._closed else (self._number, self._frame)

    async def close(self) -> None:
        """End every watcher's stream now."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    async def _poll(self) -> None:
        while True:
            frame = await self._read()
            async with self._changed:
                self._frame = frame
                self._number += 1
                self._changed.notify_all()
            await asyncio.sleep(self._interval_s)

    async def _read(self) -> Frame:
        history_s, self._history_s = self._history_s, TICK_HISTORY_S
        try:
            stats, ready = await asyncio.gather(self._get("/stats", history_s=history_s), self._get("/ready"))
            if stats[0] != httpx.codes.OK:
                return _down(f"GET /stats answered {stats[0]}")
            body = msgspec.json.decode(stats[1])
            if not isinstance(body, dict) or (body.get("schema"), body.get("version")) != STATS_FORM:
                return _down("GET /stats answers in a form that this dashboard doesn't know")
            return {
                "connected": True,
                "error": "",
                "ready": {"status": ready[0], "body": _json(ready[1])},
                "stats": body,
            }
        except httpx.HTTPError as error:
            self._history_s = JOIN_HISTORY_S
            return _down(str(error) or type(error).__name__)
        except ValueError:
            return _down("GET /stats did not answer with JSON")

    async def _get(self, path: str, **query: int) -> tuple[int, bytes]:
        """Return status and body."""
        async with self._client.stream("GET", path, params=query) as answer:
            return answer.status_code, await read_whole(answer)


def _down(error: str) -> Frame:
    return {"connected": False, "error": error, "ready": None, "stats": None}


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except ValueError:
        return None


def _rows_after(frame: Frame, last_row: int) -> tuple[Frame, int]:
    """Return the frame with only the history rows after second `last_row`, and the newest row's second."""
    if frame["stats"] is None:
        return frame, last_row
    history: dict[str, list[Any]] = frame["stats"]["history"]
    seconds = history["t"]
    if not seconds:
        return frame, last_row
    first = next((i for i, second in enumerate(seconds) if second > last_row), len(seconds))
    rows = {name: column[first:] for name, column in history.items()}
    return {**frame, "stats": {**frame["stats"], "history": rows}}, max(last_row, seconds[-1])
