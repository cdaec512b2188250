"""A trace file as blocks of whole lines, plain or gzipped, in constant memory and to the last byte that can be read."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from observability.trace_codec import TraceFormatError

MAX_LINE_BYTES: Final = 1 << 20
BLOCK_BYTES: Final = 1 << 18

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # gzip's own header and checksum


class TraceSource:
    """Opens one file; `close` ends it.

    A gzip stream is unpacked here and not by `gzip`, which loses what it has unpacked when it meets the end too early.

    Attributes:
        is_cut: after the last block: whether a gzip stream ended too early.

    Args:
        path: gzip is recognised by its first bytes.

    Raises OSError if the file can't be opened or read.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.is_cut = False
        try:
            is_gzip = self._file.read(2) == _GZIP_MAGIC
            self._file.seek(0)
        except BaseException:
            self._file.close()
            raise
        self._pieces = self._unpacked() if is_gzip else self._plain()

    def blocks(self) -> Iterator[bytes]:
        """Yield the rest of the file: whole lines, and at the end perhaps one without its newline.

        Raises TraceFormatError (without file and line) for a line too long and for damaged gzip data.
        """
        carry = b""
        for piece in self._pieces:
            stop = piece.rfind(b"\n") + 1
            first = (piece.find(b"\n") if stop else len(piece)) + len(carry)
            if first > MAX_LINE_BYTES:
                raise TraceFormatError(f"longer than {MAX_LINE_BYTES} bytes")
            if stop:
                yield carry + piece[:stop]
                carry = piece[stop:]
            else:
                carry += piece
        if carry:
            yield carry

    def close(self) -> None:
        self._file.close()

    def _plain(self) -> Iterator[bytes]:
        while piece := self._file.read(BLOCK_BYTES):
            yield piece

    def _unpacked(self) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        packed = b""
        while packed or (packed := self._file.read(BLOCK_BYTES)):
            if unpacker.eof:  # members may follow one another; zeros are padding
                packed = packed.lstrip(b"\0")
                if not packed:
                    continue
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
            try:
                piece = unpacker.decompress(packed, BLOCK_BYTES)
            except zlib.error as error:
                raise TraceFormatError(f"damaged gzip data: {error}") from error
            packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            if piece:
                yield piece
        self.is_cut = not unpacker.eof
