"""What the spans of a request say: attributes and status, by convention where there is one."""

from opentelemetry.semconv.attributes import (
    client_attributes,
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
    user_agent_attributes,
)
from opentelemetry.trace import Status, StatusCode

from observability import genai
from observability.span_facts import Answered, AttributeValue, GenerationFacts, HttpExchange
from observability.timeline import Outcome, RequestTimeline

ERROR_TYPE = error_attributes.ERROR_TYPE
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
OTHER_METHOD = "_OTHER"
CANCELLED = "cancelled"
MAX_TEXT_CHARS = 256
UNSET = Status(StatusCode.UNSET)

Attributes = dict[str, AttributeValue]


def shown_method(method: str) -> str:
    """Return a method as the HTTP conventions want it: a client's own invention is `_OTHER`."""
    return method if method in KNOWN_METHODS else OTHER_METHOD


def exchange_attributes(exchange: HttpExchange) -> Attributes:
    """Return what a server span says, by the stable HTTP conventions."""
    method = shown_method(exchange.method)
    attributes: Attributes = {
        http_attributes.HTTP_REQUEST_METHOD: method,
        url_attributes.URL_PATH: exchange.path[:MAX_TEXT_CHARS],
        url_attributes.URL_SCHEME: exchange.scheme,
        network_attributes.NETWORK_PROTOCOL_VERSION: exchange.http_version,
        "pellucid.request_id": exchange.request_id,
    }
    if method == OTHER_METHOD:
        attributes[http_attributes.HTTP_REQUEST_METHOD_ORIGINAL] = exchange.method[:MAX_TEXT_CHARS]
    if exchange.route:
        attributes[http_attributes.HTTP_ROUTE] = exchange.route
    if exchange.query:
        attributes[url_attributes.URL_QUERY] = exchange.query[:MAX_TEXT_CHARS]
    if exchange.server is not None:
        attributes[server_attributes.SERVER_ADDRESS] = exchange.server[0]
        if exchange.server[1] is not None:
            attributes[server_attributes.SERVER_PORT] = exchange.server[1]
    if exchange.client is not None:
        attributes[client_attributes.CLIENT_ADDRESS] = exchange.client[0]
    if exchange.user_agent:
        attributes[user_agent_attributes.USER_AGENT_ORIGINAL] = exchange.user_agent[:MAX_TEXT_CHARS]
    if exchange.status:
        attributes[http_attributes.HTTP_RESPONSE_STATUS_CODE] = exchange.status
    if exchange.status >= 500:
        attributes[ERROR_TYPE] = str(exchange.status)
    elif not exchange.is_whole:
        attributes[ERROR_TYPE] = CANCELLED
    return attributes


def exchange_status(exchange: HttpExchange) -> Status:
    """A refusal is the client's fault and no error of this span; not to have answered in full is."""
    if exchange.status >= 500:
        return Status(StatusCode.ERROR)
    if not exchange.is_whole:
        return Status(StatusCode.ERROR, "the client left")
    return UNSET


def generation_attributes(
    timeline: RequestTimeline, facts: GenerationFacts, answered: Answered, operation: str
) -> Attributes:
    """Return what a generation's span says, by the GenAI conventions, and where to find it in the event stream."""
    attributes: Attributes = {
        genai.OPERATION_NAME: operation,
        genai.PROVIDER_NAME: genai.PROVIDER,
        genai.REQUEST_MODEL: facts.request_model,
        genai.RESPONSE_MODEL: timeline.model,
        "pellucid.request_id": timeline.request_id,
        "pellucid.outcome": timeline.outcome.value if timeline.outcome is not None else "",
        "pellucid.preemptions": timeline.num_preemptions,
        "pellucid.first_seq": timeline.first_seq,
        "pellucid.last_seq": timeline.last_seq,
        "pellucid.first_step": timeline.first_step,
        "pellucid.last_step": timeline.last_step,
        **facts.attributes,
    }
    if timeline.in_engine:
        attributes[genai.USAGE_INPUT_TOKENS] = timeline.num_prompt_tokens
        attributes[genai.USAGE_OUTPUT_TOKENS] = timeline.num_output_tokens
        attributes[genai.USAGE_CACHE_READ_INPUT_TOKENS] = timeline.num_cached_tokens
    if answered.answer_id:
        attributes[genai.RESPONSE_ID] = answered.answer_id
    reasons = tuple(choice.finish_reason for _, choice in sorted(timeline.choices.items()) if choice.finish_reason)
    if reasons:
        attributes[genai.RESPONSE_FINISH_REASONS] = reasons
    if timeline.stream and timeline.sent_first is not None:
        attributes[genai.RESPONSE_TIME_TO_FIRST_CHUNK] = timeline.sent_first - timeline.arrival
    if timeline.outcome is not Outcome.FINISHED:
        attributes[ERROR_TYPE] = error_type_of(timeline)
    if facts.input_messages:
        attributes[genai.INPUT_MESSAGES] = facts.input_messages
    if answered.output_messages:
        attributes[genai.OUTPUT_MESSAGES] = answered.output_messages
    return attributes


def error_type_of(timeline: RequestTimeline) -> str:
    """Return `error.type` of a request that didn't finish: one of our error types, or `cancelled`."""
    return CANCELLED if timeline.outcome is Outcome.ABORTED else timeline.error_type or "internal_error"


def generation_status(timeline: RequestTimeline) -> Status:
    """Say why it is not whole; a refusal's message may repeat what the client sent, so it stays out."""
    if timeline.outcome is Outcome.FINISHED:
        return UNSET
    described = timeline.message if timeline.outcome in (Outcome.FAILED, Outcome.ABORTED) else ""
    return Status(StatusCode.ERROR, described or None)
