"""A mixed load over HTTP, and what its clients counted: answers whole and streamed, stops, refusals, early leavers."""

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.http_calls import COMPLETIONS, completion, frames

TIMEOUT_S = 60.0


@dataclass
class ClientCounts:
    """What the clients of a run know by themselves.

    Attributes:
        rejections: refusals by the error's type.
        answered: ids of the requests (one per prompt) whose answer came to its end.
        num_left: requests whose client left during the answer.
        calls: of each call that was answered, what its usage and its choices said.
        traces: trace ids of the answers.
        num_http: responses by status.
    """

    rejections: Counter[str] = field(default_factory=Counter)
    calls: list["Answered"] = field(default_factory=list)
    num_left: int = 0
    traces: list[str] = field(default_factory=list)
    num_http: Counter[int] = field(default_factory=Counter)

    @property
    def num_answered(self) -> int:
        return sum(len(call.request_ids) for call in self.calls)


@dataclass(frozen=True)
class Answered:
    """An answer that came to its end.

    Attributes:
        request_ids: one per prompt.
        ends: of each, `length` if one of its choices ran into it, else `stop`.
        prompt_tokens, completion_tokens, cached_tokens: its usage.
        may_be_outrun: it has a stop string, so the engine can be done before the service finds it.
        max_tokens: of each choice, times the choices.
    """

    request_ids: list[str]
    ends: list[str]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    may_be_outrun: bool
    max_tokens: int


def run_mixed_load(url: str, *, num_calls: int, num_clients: int, seed: int, stop: str) -> ClientCounts:
    """Send calls from several threads and return what the clients counted once all are over.

    Args:
        url: of the service.
        num_calls: in all.
        num_clients: at once.
        seed: decides what each call is.
        stop: a string that answers of this model come to.
    """
    draw = random.Random(seed)
    counts = ClientCounts()
    bodies = [_body(draw, number, stop) for number in range(num_calls)]
    with (
        httpx.Client(base_url=url, timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=num_clients)) as client,
        ThreadPoolExecutor(num_clients) as pool,
    ):
        for result in pool.map(lambda body: _call(client, body), bodies):
            _add(counts, result)
    return counts


def _body(draw: random.Random, number: int, stop: str) -> dict[str, Any]:
    beginning = "shared beginning of many prompts, long enough for several blocks "[: draw.choice([0, 21, 40, 66])]
    prompts: Any = f"{beginning}{draw.choice('abc')} {number % 9}"
    kind = draw.choice(["whole", "stream", "stream", "leave", "refused", "too long", "several", "stop"])
    fields: dict[str, Any] = {"max_tokens": draw.randint(1, 24), "n": draw.choice([1, 1, 1, 2]), "ignore_eos": True}
    if kind == "refused":
        fields["temperature"] = -1
    elif kind == "too long":
        prompts = "x" * 5_000
    elif kind == "several":
        prompts = [f"{prompts} {i}" for i in range(3)]
    elif kind == "stop":
        fields.update(stop=[stop], max_tokens=48)
    elif kind == "leave":
        fields.update(max_tokens=90, n=1)
    if kind != "whole":
        fields.update(stream=draw.random() < 0.7 or kind == "leave")
    if fields.get("stream"):
        fields["stream_options"] = {"include_usage": True}
    return {**completion(prompts, **fields), "_leaves": kind == "leave"}


@dataclass(frozen=True)
class CallResult:
    """What one call saw; `kind` is `answered`, `left` or `rejected`."""

    kind: str
    body: dict[str, Any]
    payloads: Sequence[Any]
    status: int
    request_id: str
    trace_id: str


def _call(client: httpx.Client, body: dict[str, Any]) -> CallResult:
    sent = {name: value for name, value in body.items() if name != "_leaves"}
    kind, payloads = "answered", []
    with client.stream("POST", COMPLETIONS, json=sent) as response:
        if response.status_code == 200 and body["_leaves"]:
            next(response.iter_text())
            kind = "left"
        else:
            response.read()
    if response.status_code != 200:
        kind, payloads = "rejected", [response.json()]
    elif kind == "answered":
        payloads = frames(response.text) if body.get("stream") else [response.json()]
    ids = response.headers["x-request-id"], response.headers["x-trace-id"]
    return CallResult(kind, body, payloads, response.status_code, *ids)


def _add(counts: ClientCounts, call: CallResult) -> None:
    counts.num_http[call.status] += 1
    if call.kind == "rejected":
        counts.rejections[call.payloads[0]["error"]["type"]] += 1
        return
    counts.traces.append(call.trace_id)
    if call.kind == "left":
        counts.num_left += 1
        return
    prompt, n = call.body["prompt"], call.body["n"]
    num_prompts = len(prompt) if isinstance(prompt, list) else 1
    several = [f"{call.request_id}-{index}" for index in range(num_prompts)]
    reasons: dict[int, str] = {}
    usage: dict[str, Any] = {}
    for payload in call.payloads:
        if payload == "[DONE]":
            continue
        assert "error" not in payload, payload
        usage = payload.get("usage") or usage
        reasons.update({c["index"]: c["finish_reason"] for c in payload["choices"] if c.get("finish_reason")})
    assert sorted(reasons) == list(range(n * num_prompts))
    ends = []
    for place in range(num_prompts):
        of_prompt = {reasons[place * n + index] for index in range(n)}
        ends.append("length" if "length" in of_prompt else "stop")
    counts.calls.append(
        Answered(
            request_ids=several if num_prompts > 1 else [call.request_id],
            ends=ends,
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            may_be_outrun="stop" in call.body,
            max_tokens=call.body["max_tokens"] * n,
        )
    )
