"""Which of the service's routes the page may reach, and how each is passed on."""

import re
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How an answer travels."""

    WHOLE = "whole"  # small: read, then passed on with its length
    STREAMED = "streamed"  # large or slow to end: passed on as it comes


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A route of the service.

    Attributes:
        path: as the service writes it; a `{name}` stands for one segment in the form of `is_plain_id`.
        method: GET or POST.
        silence_s: the longest silence that an answer may hold, None for any.
    """

    path: str
    method: str = "GET"
    kind: Kind = Kind.WHOLE
    silence_s: float | None = 5.0


FORWARDED = (
    Forwarded("/health"),
    Forwarded("/ready"),
    Forwarded("/info"),
    Forwarded("/stats"),
    Forwarded("/metrics"),
    Forwarded("/kernels"),
    Forwarded("/v1/models"),
    Forwarded("/v1/chat/completions", "POST", Kind.STREAMED, None),
    Forwarded("/telemetry/requests"),
    Forwarded("/telemetry/requests/{request_id}"),
    Forwarded("/telemetry/requests/{request_id}/cancel", "POST"),
    Forwarded("/telemetry/steps"),
    Forwarded("/telemetry/config"),
    Forwarded("/telemetry/traces"),
    Forwarded("/telemetry/traces/{trace_id}"),
    Forwarded("/telemetry/kv/events", kind=Kind.STREAMED, silence_s=60.0),
    Forwarded("/telemetry/kv/live", kind=Kind.STREAMED, silence_s=None),
    Forwarded("/telemetry/kv/snapshot", kind=Kind.STREAMED, silence_s=60.0),
    Forwarded("/telemetry/kv/trace", kind=Kind.STREAMED, silence_s=60.0),
    Forwarded("/telemetry/kv/recording"),
    Forwarded("/telemetry/kv/recording", "POST", silence_s=60.0),
)

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


def is_plain_id(value: str) -> bool:
    """Return whether a path segment is an id and nothing that a URL could read as something else."""
    return _PLAIN_ID.fullmatch(value) is not None
