"""Recorded traces, in the form that Mooncake published and load generators share: JSON Lines of

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}

timestamp in milliseconds, lengths in tokens. Equal hash ids stand for equal blocks of 512 prompt tokens, so requests
share what they shared in the recording. `hash_ids` may be left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.errors import PlanError

BLOCK_TOKENS = 512


class TraceRequest(msgspec.Struct, frozen=True):
    """One line."""

    timestamp: Annotated[float, Meta(ge=0)]
    input_length: Annotated[int, Meta(ge=1, le=1_000_000)]
    output_length: Annotated[int, Meta(ge=1, le=1_000_000)]
    hash_ids: tuple[int, ...] = ()


def read_trace(path: Path) -> list[TraceRequest]:
    """Return the requests by time; raises PlanError naming the line that is wrong."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PlanError(f"the trace {path} can't be read: {error}") from None
    requests = sorted(_parse(path, content), key=lambda request: request.timestamp)
    if not requests:
        raise PlanError(f"the trace {path} has no requests")
    return requests


def _parse(path: Path, content: bytes) -> Iterator[TraceRequest]:
    decoder = msgspec.json.Decoder(TraceRequest)
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise PlanError(f"{path}, line {number}: {error}") from None
