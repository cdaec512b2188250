"""A stand-in for the service: the routes that the dashboard uses, with made-up but well-formed answers.

python -m tests.support.stub_service --port 8100 [--idle]
"""

import argparse
import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.stub_telemetry import StubTelemetry
from tests.support.synthetic_load import OffsetClock, SyntheticLoad

MODEL = "SmolLM2-135M-Instruct"
ANSWER = "Light passes through a pellucid stone: you see what lies behind it. That is the whole idea 🙂"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![shot](http://127.0.0.1:9/pixel.png)",
    "\u202etxet desrever\u202c",
    "\n\n" + "x" * 100_000 + "\n\n",
    "`" * 5_000 + "[" * 5_000 + "*" * 5_000,
)
MARKDOWN = (
    "## Glass\n\n", "It is **clear** because:\n\n", "1. no *electron* absorbs it\n", "2. see `n = c / v`\n\n",
    "```python\nprint('<b>1</b>')\n```\n\n", "| a | b |\n|---|--:|\n| 1 | 2 |\n",
)  # fmt: skip
CHAT_FIELDS = (
    "model", "messages", "stream", "stream_options", "n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k",
    "min_p", "seed", "stop", "stop_token_ids", "presence_penalty", "logprobs", "top_logprobs", "cache_salt",
    "continue_final_message", "timings",
)  # fmt: skip


@dataclass
class Stub:
    """State of one stand-in.

    Attributes:
        rate: requests per second of the made-up load, 0 for an idle server.
        delay_s: between two deltas of a chat.
        state, reason: of the engine; `/ready` answers 503 with the reason unless it is `ready`.
        broken: every route answers 500.
        num_stats: how often `/stats` was asked for.
        chats: bodies of the chats so far.
        left: set when a chat's client left before the end.
        asked: set at each `/stats`.
    """

    rate: float = 1.5
    past_s: float = 320.0
    delay_s: float = 0.02
    state: str = "ready"
    reason: str = ""
    broken: bool = False
    num_stats: int = 0
    chats: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        now = time.monotonic()
        self._load = SyntheticLoad(OffsetClock(now - self.past_s, time.time() - now), rate=self.rate)
        self._load.run_until(now)
        self.telemetry = StubTelemetry(self._load)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/stats", self._stats),
                Route("/ready", self._ready),
                Route("/health", self._ready),
                Route("/info", self._info),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/secret", self._secret),
                *self.telemetry.routes(),
            ]
        )

    async def _stats(self, request: Request) -> Response:
        self.num_stats += 1
        self.asked.set()
        if self.broken:
            return PlainTextResponse("broken", 500)
        self._load.run_until(time.monotonic())
        stats = self._load.recorder.stats(history_s=int(request.query_params.get("history_s", 60)))
        stats["service"] = {"ready": self.state == "ready", "engine_state": self.state}
        return JSONResponse(stats)

    async def _ready(self, request: Request) -> Response:
        if self.state == "ready":
            return JSONResponse({"status": "ready"})
        error = {"message": self.reason, "type": "service_unavailable", "param": None, "code": None}
        return JSONResponse({"error": error}, 503)

    async def _info(self, request: Request) -> Response:
        return JSONResponse(
            {"model": MODEL, "executor": "torch", "device": "cpu", "dtype": "float32", "chat_fields": CHAT_FIELDS}
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _secret(self, request: Request) -> Response:
        return PlainTextResponse("not for the dashboard")

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.chats.append(body)
        prompt = body["messages"][-1]["content"]
        if "refuse" in prompt:
            error = {
                "message": "`max_tokens` must be at least 1",
                "type": "invalid_request_error",
                "param": "max_tokens",
            }
            return JSONResponse({"error": {**error, "code": None}}, 400)
        headers = {"x-request-id": f"r-{len(self.chats)}", "x-trace-id": f"{len(self.chats):032x}"}
        return StreamingResponse(self._deltas(body, prompt), media_type="text/event-stream", headers=headers)

    async def _deltas(self, body: dict[str, Any], prompt: str) -> AsyncGenerator[bytes, None]:
        words: Iterable[str] = _words_of(prompt)
        if "forever" in prompt:
            words = itertools.cycle(words)
        limit = body.get("max_tokens", 64)
        num_tokens = 0
        finished = False
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            yield b": keep-alive\n\n"
            for word in words:
                if num_tokens == limit:
                    break
                await asyncio.sleep(self.delay_s)
                if "break" in prompt and num_tokens == 3:
                    error = {
                        "message": "the engine process died",
                        "type": "internal_error",
                        "param": None,
                        "code": None,
                    }
                    yield b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
                    finished = True
                    return
                num_tokens += 1
                text = word if num_tokens == 1 or "markdown" in prompt else f" {word}"
                for index in range(body.get("n", 1)):
                    yield self._chunk(
                        {"content": text}, index=index, logprobs=_logprobs(text) if body.get("logprobs") else None
                    )
            for index in range(body.get("n", 1)):
                yield self._chunk({}, index=index, finish_reason="length" if num_tokens == limit else "stop")
            if body.get("stream_options", {}).get("include_usage"):
                usage = {
                    "prompt_tokens": 21,
                    "completion_tokens": num_tokens,
                    "total_tokens": 21 + num_tokens,
                    "prompt_tokens_details": {"cached_tokens": 16},
                }
                yield self._frame(choices=[], usage=usage, metrics={"queue_time_ms": 1.5})
            yield b"data: [DONE]\n\n"
            finished = True
        finally:
            if not finished:
                self.left.set()

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        index: int = 0,
        finish_reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._frame(choices=[choice])

    def _frame(self, **fields: Any) -> bytes:
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        return b"data: " + msgspec.json.encode({**common, **fields}) + b"\n\n"


def _words_of(prompt: str) -> Iterable[str]:
    if "hostile" in prompt:
        return HOSTILE
    return MARKDOWN if "markdown" in prompt else ANSWER.split()


def _logprobs(text: str) -> dict[str, Any]:
    """Return the log probabilities of one token: 50 %, with an alternative of 25 %."""
    other = {"token": " other", "logprob": -1.386, "bytes": list(b" other")}
    entry = {"token": text, "logprob": -0.693, "bytes": list(text.encode())}
    return {"content": [{**entry, "top_logprobs": [entry, other]}], "refusal": None}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--idle", action="store_true")
    args = parser.parse_args()
    uvicorn.run(Stub(rate=0.0 if args.idle else 1.5).app(), port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
