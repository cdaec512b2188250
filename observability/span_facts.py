"""What the service knows of a request and the event stream doesn't, for its spans. Stamps are monotonic seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from observability.trace_context import TraceContext

AttributeValue = str | bool | int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpExchange:
    """One HTTP request and its response, when it is over.

    Attributes:
        method: as sent.
        route: template, or "" if no route matched.
        path, query: as sent.
        scheme, http_version, server, client, user_agent: of the connection and the head; "" or None if unknown.
        status: 0 if no head was sent.
        is_whole: whether the last byte of the response was handed to the transport.
        start, end: head read, response over.
    """

    trace: TraceContext
    request_id: str
    method: str
    route: str
    path: str
    query: str
    scheme: str
    http_version: str
    server: tuple[str, int | None] | None
    client: tuple[str, int] | None
    user_agent: str
    status: int
    is_whole: bool
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """What a client asked one generation for.

    Attributes:
        trace: of the HTTP request that it belongs to.
        arrival: monotonic seconds when its body was parsed.
        request_model: the name the client gave, or the default one.
        attributes: the sampling parameters it gave, by the names of observability.genai.
        input_messages: as JSON in the form of the convention; "" unless content may be logged.
    """

    trace: TraceContext
    arrival: float
    request_model: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    input_messages: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the answer to it was.

    Attributes:
        answer_id: `chatcmpl-...` or `cmpl-...`.
        output_messages: as JSON in the form of the convention; "" unless content may be logged.
    """

    answer_id: str = ""
    output_messages: str = ""
