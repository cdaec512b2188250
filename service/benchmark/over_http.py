"""The same engine as clients see it: a closed loop over HTTP against a server that runs already."""

import asyncio
from dataclasses import dataclass

from loadtest.closed_loop import LoopShape, run_closed_loop
from loadtest.prompts import PromptSource
from loadtest.stream_client import StreamClient
from loadtest.summary import Latencies, latencies, rates

PROMPT_TOKENS = 128
NEW_TOKENS = 64
STREAMS = (1, 8, 32)
MAX_PROMPTS_PER_STREAM = 200


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """What `streams` clients got together."""

    streams: int
    output_tokens_per_s: float
    latencies: Latencies


def measure_served(url: str, prompts: PromptSource, streams: int, *, seconds: float, api_key: str = "") -> ServedPoint:
    """Keep `streams` requests running; raises RuntimeError when one fails."""
    body = {"max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
    client = StreamClient(f"{url.rstrip('/')}/v1/completions", body, api_key=api_key)
    shape = LoopShape(streams, warm_up_s=seconds / 4, window_s=seconds, min_requests=streams)
    asked = (prompts.take(PROMPT_TOKENS) for _ in range(MAX_PROMPTS_PER_STREAM * streams))
    run = asyncio.run(run_closed_loop(client.run, asked, shape))
    return ServedPoint(streams, rates(run).output_tokens_per_s, latencies([run]))
