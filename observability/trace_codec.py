"""Lines of a trace file to events and back.

Files come from anywhere, so nesting is bounded before anything is parsed.
"""

import re
from collections.abc import Iterable
from typing import Final, get_args

import msgspec

from engine.events import AnyEvent, Event

MAX_DEPTH: Final = 32


class TraceFormatError(ValueError):
    """A trace file can't be read; the message names file, line and field."""


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a type this version doesn't know; `fields` is everything but `type`, `seq`, `t` and `step`."""

    type: str
    seq: int
    t: float
    step: int
    fields: dict[str, object]


TraceEvent = AnyEvent | UnknownEvent

KNOWN_EVENT_TYPES: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent))


class EventOfAnyType(msgspec.Struct, frozen=True, kw_only=True):
    """The part that every event has, known or not."""

    type: str
    seq: int
    t: float
    step: int


_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_common_decoder = msgspec.json.Decoder(EventOfAnyType)
_map_decoder: msgspec.json.Decoder[dict[str, object]] = msgspec.json.Decoder(dict[str, object])
_encoder = msgspec.json.Encoder()

_STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def event_type(event: TraceEvent | Event) -> str:
    """Return the name of an event's type, as it stands in the file."""
    return event.type if isinstance(event, UnknownEvent) else str(event.__struct_config__.tag)


def encode_event(event: Event | UnknownEvent) -> bytes:
    """Return the event's line, without the newline."""
    if isinstance(event, UnknownEvent):
        head = {"type": event.type, "seq": event.seq, "t": event.t, "step": event.step}
        return _encoder.encode({**head, **event.fields})
    return _encoder.encode(event)


def encode_lines(events: Iterable[Event | UnknownEvent]) -> bytes:
    """Return the lines of events, each with its newline."""
    listed = list(events)
    if any(isinstance(event, UnknownEvent) for event in listed):
        return b"".join(encode_event(event) + b"\n" for event in listed)
    return _encoder.encode_lines(listed)


def decode_event(line: bytes) -> TraceEvent:
    """Return the event of one line; raises TraceFormatError (without file and line) if it isn't one."""
    check_depth(line)
    try:
        return _event_decoder.decode(line)
    except msgspec.ValidationError as error:
        try:
            common = _common_decoder.decode(line)
        except msgspec.DecodeError:
            raise TraceFormatError(f"not an event: {error}") from error
        if common.type in KNOWN_EVENT_TYPES:
            raise TraceFormatError(f"event `{common.type}`: {error}") from error
        fields = _map_decoder.decode(line)
        for name in ("type", "seq", "t", "step"):
            del fields[name]
        return UnknownEvent(type=common.type, seq=common.seq, t=common.t, step=common.step, fields=fields)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"not JSON: {error}") from error


def decode_lines(block: bytes) -> list[AnyEvent] | None:
    """Return the events of a block of whole lines at once, None if they must be looked at one by one.

    That is so when a line is no known event, or could nest: every brace of the block must open a line, and there must
    be no bracket, so that no line can be deeper than one level.
    """
    num_opened = block.count(b"{")
    if num_opened != block.count(b"\n{") + block.startswith(b"{") or b"[" in block:
        return None
    try:
        return _event_decoder.decode_lines(block)
    except (msgspec.DecodeError, UnicodeDecodeError):  # ValidationError is one
        return None


def check_depth(line: bytes) -> None:
    """Refuse deep nesting before a recursive parser sees it; most lines have too few brackets to need the scan."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return
    depth = 0
    for match in _STRINGS_AND_BRACKETS.finditer(line):
        first = match.group()[0]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise TraceFormatError(f"nested deeper than {MAX_DEPTH} levels")
        elif first in b"]}":
            depth -= 1
