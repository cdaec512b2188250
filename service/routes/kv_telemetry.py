"""`/telemetry/kv/...`: the event stream itself: as a trace file, in pages, live, and as the state that it adds up to.

A place in the stream is named LIFE:SEQ, for `seq` alone means nothing once the engine was restarted.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from engine.errors import EngineUnavailableError, InvalidRequestError
from engine.events import Event
from observability.event_tape import EventTape, Life
from observability.live_feed import LifeBegins, Missed, live_feed
from observability.trace_codec import encode_lines
from observability.trace_file import GZIP_LEVEL, encode_beginning
from observability.trace_header import TraceHeader
from service.errors import NotFoundError, clip
from service.json_response import json_response
from service.query import is_number, query_number
from service.services import Services
from service.sse import EventStream, Silence

DEFAULT_EVENTS: Final = 1_000
MAX_EVENTS: Final = 10_000
MAX_INTERVAL_MS: Final = 10_000
DEFAULT_INTERVAL_MS: Final = 250  # each word costs the core that serves as much as two steps' events
CATCH_UP_EVENTS: Final = 4_096  # taken in at a time before other work gets its turn: about a millisecond
CHUNK_EVENTS: Final = 2_048

_JSON_LINES = "application/x-ndjson"


class KVTelemetryRoutes:
    """Read-only views of the recorder's tape; none of them is felt by the engine."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def _tape(self) -> EventTape:
        return self._services.recorder.tape

    async def snapshot(self, _: Request) -> Response:
        """Who owns which block now, and after which event that was so."""
        tape = self._tape
        is_current = tape.catch_up(limit=CATCH_UP_EVENTS)
        while not is_current:
            await asyncio.sleep(0)
            is_current = tape.catch_up(limit=CATCH_UP_EVENTS)
        life, snapshot = tape.snapshot()
        header = self._header(life)
        num_in_use = len(snapshot.blocks)
        num_referenced = sum(1 for block in snapshot.blocks if block.owners)
        return json_response(
            {
                "life": header.life,
                "header": header,
                "counts": {
                    "free": header.num_blocks - num_in_use,
                    "referenced": num_referenced,
                    "cached": num_in_use - num_referenced,
                },
                **{name: getattr(snapshot, name) for name in snapshot.__struct_fields__},
            }
        )

    async def events(self, request: Request) -> Response:
        """JSON Lines: one that says where this is, then events after number `since`, at most `limit`."""
        tape = self._tape
        since = query_number(request, "since", default=0)
        limit = query_number(request, "limit", default=DEFAULT_EVENTS, low=1, high=MAX_EVENTS)
        asked = request.query_params.get("life", "")
        current = self._current_life()
        life = tape.life(asked) if asked else current
        is_lost = life is None
        if life is None:
            life, since = current, 0
        passage = tape.read(tape.place_after(life, since), limit=limit)
        if passage is None or passage.life is not life:  # nothing of this life past `since`
            events: list[Event] = []
            num_lost = 0
        else:
            events, num_lost = passage.events, passage.num_lost
        position = {
            "type": "position",
            "life": life.id,
            "since": since,
            "last_seq": events[-1].seq if events else since,
            "num_events": len(events),
            "num_dropped": num_lost,
            "is_life_lost": is_lost,
            "has_life_ended": life.has_ended,
            "current_life": current.id,
        }
        return Response(msgspec.json.encode(position) + b"\n" + encode_lines(events), media_type=_JSON_LINES)

    async def live(self, request: Request) -> Response | EventStream:
        """Server-sent events, from now on or from LIFE:SEQ (Last-Event-ID, or `life` and `since`)."""
        interval_ms = query_number(request, "interval_ms", default=DEFAULT_INTERVAL_MS, low=0, high=MAX_INTERVAL_MS)
        place = self._place_asked_for(request)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        keep_alive_s = self._services.settings.keep_alive_s
        return EventStream(
            self._frames(place, interval_ms / 1e3),
            silence=Silence(keep_alive_s=keep_alive_s, filler_s=keep_alive_s),
            clock=self._services.clock,
        )

    async def trace(self, request: Request) -> Response:
        """The ring as a trace file: of the current engine life, or of `life` if it is still held."""
        tape = self._tape
        asked = request.query_params.get("life", "")
        life = tape.life(asked) if asked else self._current_life()
        if life is None:
            raise NotFoundError(f"no events are held of engine life {clip(asked)}", param="life")
        snapshot, start = tape.settled_start(life)
        header = self._header(life, num_dropped_events=start - life.first)
        events = tape.between(start, life.stop)
        headers = {
            "content-disposition": f'attachment; filename="pellucid-{life.id}.jsonl"',
            "vary": "accept-encoding",
        }
        body = _lines(encode_beginning(header, snapshot), events)
        if _accepts_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
            body = _gzipped(body)
        return StreamingResponse(body, headers=headers, media_type=_JSON_LINES)

    # --- inside ---

    def _current_life(self) -> Life:
        lives = self._tape.lives
        if not lives:
            raise EngineUnavailableError("the engine has said nothing yet")
        return lives[-1]

    def _header(self, life: Life | None, *, num_dropped_events: int = 0) -> TraceHeader:
        header = None if life is None else self._services.recorder.header(life, num_dropped_events=num_dropped_events)
        if header is None:
            raise EngineUnavailableError("the engine hasn't started yet")
        return header

    def _place_asked_for(self, request: Request) -> int:
        """Return where a viewer begins; one whose life is gone, or is unknown, gets all that is held."""
        tape = self._tape
        asked_life, asked_seq = request.query_params.get("life", ""), request.query_params.get("since", "")
        last_id = request.headers.get("last-event-id", "")
        if last_id:
            asked_life, _, asked_seq = last_id.rpartition(":")
            if not is_number(asked_seq):  # not one of ours; a browser would give up for good on an error
                return tape.first
        elif not asked_life and not asked_seq:
            return tape.stop
        if not is_number(asked_seq):
            raise InvalidRequestError(f"`since` must be an event number, got {clip(asked_seq)}", param="since")
        life = tape.life(asked_life) if asked_life else self._current_life()
        return tape.first if life is None else tape.place_after(life, int(asked_seq))

    async def _frames(self, place: int, interval_s: float) -> AsyncGenerator[bytes, None]:
        async for item in live_feed(self._tape, place, interval_s=interval_s):
            life = item.life
            if isinstance(item, LifeBegins):
                yield _frame("life", {"life": life.id, "header": self._services.recorder.header(life)})
            elif isinstance(item, Missed):
                yield _frame("gap", {"life": life.id, "num_dropped": item.num_events})
            else:
                yield b"id: %b:%d\ndata: %b\n\n" % (
                    life.id.encode(),
                    item.events[-1].seq,
                    msgspec.json.encode(item.events),
                )


def _frame(event: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))


async def _lines(beginning: bytes, events: list[Event]) -> AsyncGenerator[bytes, None]:
    yield beginning
    for start in range(0, len(events), CHUNK_EVENTS):
        yield encode_lines(events[start : start + CHUNK_EVENTS])


async def _gzipped(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Compress off the event loop, piece by piece."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
    async for piece in pieces:
        packed = await asyncio.to_thread(packer.compress, piece)
        if packed:
            yield packed
    yield packer.flush()


def _accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        if name.strip() in ("gzip", "*"):
            quality = parameters.replace(" ", "").removeprefix("q=")
            return quality.strip("0.") != "" or not quality
    return False
