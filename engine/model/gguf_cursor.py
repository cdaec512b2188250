"""Cursor: reads little-endian fields one after the other, and never past the end of the file."""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelLoadError

MAX_NAME_BYTES: Final = 255
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class Cursor:
    """A position in a file's bytes.

    Every method takes `what`, the field as an error should name it, and raises ModelLoadError when the file ends first.
    """

    def __init__(self, file: NDArray[np.uint8]) -> None:
        self._view = file.data
        self._num_bytes = len(self._view)
        self.position = 0

    def require(self, num_bytes: int, what: str) -> None:
        """Check that `num_bytes` more bytes are there; `what` is the start of the message."""
        left = self._num_bytes - self.position
        if num_bytes > left:
            raise ModelLoadError(f"{what}: needs {num_bytes} bytes, but the file ends after {left} more")

    def u32(self, what: str) -> int:
        self.require(4, f"`{what}`")
        (value,) = _U32.unpack_from(self._view, self.position)
        self.position += 4
        return int(value)

    def u64(self, what: str) -> int:
        self.require(8, f"`{what}`")
        (value,) = _U64.unpack_from(self._view, self.position)
        self.position += 8
        return int(value)

    def raw(self, num_bytes: int, what: str) -> bytes:
        self.require(num_bytes, f"`{what}`")
        start = self.position
        self.position += num_bytes
        return bytes(self._view[start : self.position])

    def numbers(self, count: int, dtype: str, what: str) -> NDArray[np.generic]:
        """Return `count` numbers as a view into the file (it may be unaligned)."""
        size = np.dtype(dtype).itemsize
        self.require(count * size, f"`{what}`")
        values: NDArray[np.generic] = np.frombuffer(self._view, dtype=dtype, count=count, offset=self.position)
        self.position += count * size
        return values

    def string(self, what: str) -> str:
        return self.strings(1, what)[0]

    def strings(self, count: int, what: str) -> list[str]:
        """Return `count` strings; the loop is flat because a vocabulary has 100,000 of them."""
        self.require(count * 8, f"`{what}`")
        view, end, position = self._view, self._num_bytes, self.position
        found: list[str] = []
        try:
            for _ in range(count):
                if position + 8 > end:
                    break
                (length,) = _U64.unpack_from(view, position)
                position += 8
                if length > end - position:
                    self.position = position
                    self.require(length, f"`{what}`: string length")
                found.append(str(view[position : position + length], "utf-8"))
                position += length
        except UnicodeDecodeError:
            raise ModelLoadError(f"`{what}`: string {len(found)} isn't UTF-8") from None
        self.position = position
        if len(found) < count:
            self.require(8, f"`{what}`: length of string {len(found)}")
        return found

    def name(self, what: str) -> str:
        """Return a string that can stand in a message: not empty, printable, at most MAX_NAME_BYTES long."""
        start = self.position
        length = self.u64(f"length of {what}")
        if not 0 < length <= MAX_NAME_BYTES:
            raise ModelLoadError(f"`{what}` must have 1 to {MAX_NAME_BYTES} bytes, found {length}")
        self.position = start
        name = self.string(what)
        if not name.isprintable():
            raise ModelLoadError(f"`{what}` must be printable, found {name[:60]!r}")
        return name
