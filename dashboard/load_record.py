"""What is kept of a load: in memory, in a state directory, and as JSON for the page."""

import csv
import io
from typing import Literal

import msgspec

from dashboard.load_order import Side
from loadtest.cautions import cautions
from loadtest.load_result import LoadResult
from loadtest.plan import LoadPlan

SCHEMA, VERSION = "pellucid-load-run", 1
MAX_REQUESTS = 20_000

State = Literal["running", "done", "stopped", "failed"]

CSV_COLUMNS = (
    "number", "stage", "status", "is_warm_up", "due_s", "dispatched_s", "sent_s", "first_token_s", "ended_s",
    "prompt_tokens_asked", "output_tokens_asked", "num_prompt_tokens", "num_cached_tokens", "num_output_tokens",
    "num_chunks", "itl_s", "longest_gap_s", "fluidity", "is_good", "finish_reason", "http_status", "request_id",
    "error",
)  # fmt: skip


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of one server.

    Attributes:
        side: index into the record's sides.
        round: from 0.
        cautions: what a reader should know before believing the result.
        requests_left_out: the requests were too many to keep.
    """

    side: int
    round: int
    result: LoadResult
    cautions: tuple[str, ...] = ()
    requests_left_out: bool = False


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A load, running or over; `error` says why one failed."""

    schema: str = SCHEMA
    version: int = VERSION
    id: str
    number: int
    label: str
    sides: tuple[Side, ...]
    rounds: int
    plan: LoadPlan
    state: State = "running"
    error: str = ""
    parts: tuple[Part, ...] = ()

    def with_part(self, *, side: int, round_number: int, result: LoadResult) -> "LoadRecord":
        """Return it with one more result, without its requests if they are very many."""
        too_many = len(result.requests) > MAX_REQUESTS
        kept = result.without_requests() if too_many else result
        part = Part(
            side=side,
            round=round_number,
            result=kept,
            cautions=tuple(cautions(result)),
            requests_left_out=too_many,
        )
        return msgspec.structs.replace(self, parts=(*self.parts, part))

    def outline(self) -> "LoadRecord":
        """Return it without requests and timelines: what a list shows."""
        parts = tuple(
            msgspec.structs.replace(part, result=msgspec.structs.replace(part.result, requests=(), timeline=()))
            for part in self.parts
        )
        return msgspec.structs.replace(self, parts=parts)

    def without_requests(self) -> "LoadRecord":
        """Return it without requests: what the charts need."""
        parts = tuple(msgspec.structs.replace(part, result=part.result.without_requests()) for part in self.parts)
        return msgspec.structs.replace(self, parts=parts)

    def csv(self) -> str:
        """Return one line a request; a text that a spreadsheet would take for a formula gets an apostrophe."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("target", "round", *CSV_COLUMNS))
        for part in self.parts:
            name = self.sides[part.side].target
            for request in part.result.requests:
                writer.writerow((name, part.round + 1, *(_cell(getattr(request, column)) for column in CSV_COLUMNS)))
        return out.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}"
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
