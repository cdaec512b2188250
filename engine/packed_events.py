"""The events of one message as they came over the channel, unpacked by whoever first looks at one.

When a step's tokens are sent nobody looks, and a decoder that runs once a step finds nothing of itself in the caches:
unpacking the events of eight streams takes 15 µs there, and 5 when ten messages are unpacked at once (docs/adr/0027).
"""

from collections.abc import Iterator, Sequence
from typing import Final, overload

import msgspec

from engine.events import AnyEvent, Event

_DECODER: Final = msgspec.msgpack.Decoder(list[AnyEvent])
_FEW, _MANY, _VERY_MANY = 0x90, 0xDC, 0xDD  # how a MessagePack array begins: up to 15 elements, 16 bits, 32 bits


class PackedEvents(Sequence[Event]):
    """A sequence that knows how long it is and is unpacked when it must be.

    Args:
        packed: a MessagePack array of events.

    Raises (when it is unpacked):
        msgspec.DecodeError: something in it is no event.
    """

    __slots__ = ("_events", "_num_events", "_packed")

    def __init__(self, packed: bytes | msgspec.Raw) -> None:
        self._packed: bytes | msgspec.Raw = packed
        self._num_events = _length_of(memoryview(packed))
        self._events: list[AnyEvent] | None = None

    def __len__(self) -> int:
        return self._num_events

    def __iter__(self) -> Iterator[Event]:
        return iter(self._unpacked())

    @overload
    def __getitem__(self, at: int) -> Event: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...

    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        return self._unpacked()[at]

    def _unpacked(self) -> list[AnyEvent]:
        if self._events is None:
            self._events = _DECODER.decode(self._packed)
            self._packed = b""
        return self._events


def _length_of(packed: memoryview) -> int:
    """Return how many elements an array has by its head."""
    head = packed[0]
    if head == _MANY:
        return int.from_bytes(packed[1:3], "big")
    if head == _VERY_MANY:
        return int.from_bytes(packed[1:5], "big")
    return head - _FEW
