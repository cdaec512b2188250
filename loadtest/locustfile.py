"""Chat users for Locust, in its browser page or headless:

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8100 --headless -u 8 -r 2 -t 60s

Locust takes the head of a streamed answer for its end, so each user reads the stream and reports rows of its own:
`TTFT` (to the first piece with content), `ITL` (mean gap, by the tokens that the server counted) and `answer` (to the
finish reason). `answer` counts failures: one without finish reason or `[DONE]`, an error event, any status but 200.
Locust's users wait for their answers: this is a closed loop, which can't show what would have waited outside.
"""

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any

from locust import HttpUser, between, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

WORDS = [
    "stone",
    "light",
    "river",
    "glass",
    "window",
    "field",
    "morning",
    "paper",
    "engine",
    "signal",
    "garden",
    "number",
    "winter",
    "copper",
]

_numbers = itertools.count()


@events.init_command_line_parser.add_listener
def add_arguments(parser: LocustArgumentParser) -> None:
    """Add what a user asks for."""
    parser.add_argument("--served-model", default="", help="name in every request; empty asks the server for its first")
    parser.add_argument("--max-tokens", type=int, default=32, help="of an answer")
    parser.add_argument(
        "--api-key", default="", env_var="PELLUCID_API_KEY", is_secret=True, help="sent as a bearer token"
    )


@dataclass
class Answer:
    """What was read of a stream; moments are seconds since the request was begun."""

    first_s: float = 0.0
    finished_s: float = 0.0
    num_pieces: int = 0
    num_tokens: int = 0
    is_done: bool = False
    error: str = ""

    def take(self, line: str, now_s: float) -> None:
        """Take in one line of the stream; comments and other fields are nothing."""
        if not line.startswith("data:"):
            return
        payload = line[5:].strip()
        if payload == "[DONE]":
            self.is_done = True
            return
        chunk: dict[str, Any] = json.loads(payload)
        if chunk.get("error"):
            self.error = str(chunk["error"])
        for choice in chunk.get("choices") or ():
            if (choice.get("delta") or {}).get("content"):
                self.first_s = self.first_s or now_s
                self.num_pieces += 1
            if choice.get("finish_reason"):
                self.finished_s = now_s
        if chunk.get("usage"):
            self.num_tokens = chunk["usage"]["completion_tokens"]

    @property
    def problem(self) -> str:
        """Why it is no whole answer; "" when it is one."""
        if self.error:
            return self.error
        if not self.finished_s or not self.is_done:
            return "the stream ended without a finish reason or [DONE]"
        return ""


class ChatUser(HttpUser):
    """Asks, reads the whole answer, pauses, asks again; no question is asked twice."""

    wait_time = between(0.05, 0.2)
    model = ""

    def on_start(self) -> None:
        """Ask the server for its model unless one was named."""
        self.model = self.options.served_model
        if not self.model:
            self.model = self.client.get("/v1/models", headers=self.headers).json()["data"][0]["id"]

    @property
    def options(self) -> Any:
        return self.environment.parsed_options

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.options.api_key}"} if self.options.api_key else {}

    @task
    def chat(self) -> None:
        """Ask one question."""
        number = next(_numbers)
        words = ", ".join(WORDS[(number * 7 + n * n + n) % len(WORDS)] for n in range(24))
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": f"Number {number}: tell a story about {words}."}],
            "max_tokens": self.options.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        started, answer = time.perf_counter(), Answer()
        with self.client.post(
            "/v1/chat/completions", json=body, headers=self.headers, stream=True, catch_response=True, name="head"
        ) as response:
            if response.status_code != 200:
                answer.error = f"HTTP {response.status_code}"
                response.failure(answer.error)
            else:
                for line in response.iter_lines(chunk_size=None):  # as it comes, not in blocks of 512 bytes
                    answer.take(line.decode(), time.perf_counter() - started)
        _report(self.environment, answer, time.perf_counter() - started)


def _report(environment: Environment, answer: Answer, seconds: float) -> None:
    problem = answer.problem
    _fire(environment, "answer", answer.finished_s or seconds, problem, answer.num_tokens)
    if problem or not answer.first_s:
        return
    _fire(environment, "TTFT", answer.first_s)
    if answer.num_tokens > 1:
        _fire(environment, "ITL", (answer.finished_s - answer.first_s) / (answer.num_tokens - 1))


def _fire(environment: Environment, name: str, seconds: float, problem: str = "", length: int = 0) -> None:
    environment.events.request.fire(
        request_type="SSE",
        name=name,
        response_time=seconds * 1e3,
        response_length=length,
        exception=RuntimeError(problem) if problem else None,
        context={},
    )
