"""Every name we send, listed: conventions in development change, and a rename must be a decision."""

from opentelemetry.sdk.resources import Resource

from observability import genai
from observability.span_facts import Answered, GenerationFacts
from observability.spans import SpanProjection
from observability.timeline import RequestTimeline
from tests.support.span_script import SpanScript, otel_names

DEPRECATED = {"gen_ai.system", "gen_ai.prompt", "gen_ai.completion", "gen_ai.usage.prompt_tokens",
              "gen_ai.usage.completion_tokens"}  # fmt: skip
SENT = {
    "error.type",
    "gen_ai.input.messages",
    "gen_ai.operation.name",
    "gen_ai.output.messages",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.request.temperature",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "pellucid.cached_tokens",
    "pellucid.choice.index",
    "pellucid.chunk.recomputed_tokens",
    "pellucid.chunk.start",
    "pellucid.chunk.tokens",
    "pellucid.chunks",
    "pellucid.computed_tokens",
    "pellucid.first_seq",
    "pellucid.first_step",
    "pellucid.incomplete",
    "pellucid.last_seq",
    "pellucid.last_step",
    "pellucid.lost_tokens",
    "pellucid.outcome",
    "pellucid.output_tokens",
    "pellucid.preemptions",
    "pellucid.prefix_miss",
    "pellucid.prompt_tokens",
    "pellucid.recompute_tokens",
    "pellucid.recomputed_tokens",
    "pellucid.request_id",
    "pellucid.stall_s",
    "pellucid.step",
}


def closed_timeline() -> RequestTimeline:
    """A request in which everything happens."""
    closed: list[RequestTimeline] = []
    script = SpanScript()
    script.recorder = type(script.recorder)(script.clock, metrics=script.metrics, on_closed=closed.append)
    script.open("a")
    script.arrive("a", num_prompt_tokens=40)
    script.schedule("a", num_cached_tokens=16)
    script.chunk("a", 16, 24)
    for i in range(40):
        script.at(101.0 + i).tokens("a", total=i + 1)
    script.recorder.sent_first("a", 101.5)
    script.preempt("a")
    script.abort("a")
    timeline = closed[0]
    timeline.choice(0).finish_reason = "stop"
    return timeline


def test_generation_spans_send_exactly_the_listed_names() -> None:
    projection = SpanProjection(Resource({}), version="0", wall_offset_ns=0)
    trace = SpanScript().tracing.incoming([], [])
    facts = GenerationFacts(trace, 0.0, "m", {genai.REQUEST_TEMPERATURE: 0.5}, input_messages="[]")
    spans = projection.generation(closed_timeline(), facts, Answered("chatcmpl-1", "[]"))
    assert otel_names(spans) == SENT
    assert not SENT & DEPRECATED


def test_no_constant_is_a_deprecated_name() -> None:
    values = {value for name, value in vars(genai).items() if name.isupper() and isinstance(value, str)}
    assert not values & DEPRECATED
    assert not {value for value in values if value.startswith("gen_ai.usage.cache_creation")}
