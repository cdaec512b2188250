"""Names of the OpenTelemetry GenAI conventions, in one place because all of them are still in development.

They live in open-telemetry/semantic-conventions-genai since the core conventions handed them over; the constants of
opentelemetry.semconv are of the older state. `tests/observability/test_genai_names.py` lists every name we send.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"  # of the stable attributes; GenAI has published none of its own
PROVIDER = "pellucid"

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_CHOICE_COUNT = "gen_ai.request.choice.count"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_TOP_K = "gen_ai.request.top_k"
REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_STOP_SEQUENCES = "gen_ai.request.stop_sequences"

RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"

USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"

INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"

SERVER_REQUEST_DURATION = "gen_ai.server.request.duration"
SERVER_TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"
SERVER_TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"

_OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}


def operation_of(route: str) -> str:
    """Return `gen_ai.operation.name` of a route template; an API of another shape is a kind of chat."""
    return _OPERATIONS.get(route, "chat")
