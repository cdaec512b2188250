"""The smoke test of a running stack: one streamed chat, then every page and endpoint. Standard library only."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

TIMEOUT_S = 60.0
PROMETHEUS_TIMEOUT_S = 15.0  # it looks for targets some seconds after it says that it is ready


@dataclass(frozen=True)
class SmokeResult:
    """One check: what was asked, whether it answered as it should, and what was seen."""

    name: str
    ok: bool
    seen: str


def _get(url: str, *, accept: str = "*/*") -> tuple[int, str, bytes]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return response.status, response.headers.get("content-type", ""), response.read()


def stream_chat(base_url: str, model: str, prompt: str, *, max_tokens: int = 24) -> dict[str, object]:
    """Stream one chat completion; return its text, seconds to the first text, finish reason and token count.

    Raises ValueError when the stream is not a complete one (no finish reason, no usage, no [DONE], an error frame).
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{base_url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
    )
    started = time.monotonic()
    first_s, text, finish, usage, done = None, "", None, None, False
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        for raw in response:
            line = raw.decode().rstrip("\r\n")
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                done = True
                break
            chunk = json.loads(data)
            if "error" in chunk:
                raise ValueError(f"error frame: {chunk['error']}")
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices", []):
                piece = choice.get("delta", {}).get("content") or ""
                if piece and first_s is None:
                    first_s = time.monotonic() - started
                text += piece
                finish = choice.get("finish_reason") or finish
    if not (done and finish and usage and text.strip()):
        raise ValueError(f"incomplete stream: done={done} finish_reason={finish} usage={usage} text={text!r}")
    return {"text": text, "first_s": first_s, "finish_reason": finish, "num_tokens": usage["completion_tokens"]}


def run_smoke(*, service_url: str, dashboard_url: str | None, prometheus_url: str | None) -> list[SmokeResult]:
    """Ask everything once and say what answered."""
    results: list[SmokeResult] = []

    def check(name: str, ask: Callable[[], str]) -> None:
        try:
            results.append(SmokeResult(name, True, ask()))
        except (OSError, ValueError, KeyError, IndexError) as error:
            results.append(SmokeResult(name, False, f"{type(error).__name__}: {error}"))

    def json_with(url: str, *keys: str) -> Callable[[], str]:
        def ask() -> str:
            status, _, body = _get(url)
            value = json.loads(body)
            missing = [key for key in keys if key not in value]
            if status != 200 or missing:
                raise ValueError(f"HTTP {status}, missing {missing}")
            return f"{status}, {len(body)} bytes"

        return ask

    def text_with(url: str, needle: str) -> Callable[[], str]:
        def ask() -> str:
            status, content_type, body = _get(url)
            if status != 200 or needle not in body.decode():
                raise ValueError(f"HTTP {status}, {needle!r} is not in the {len(body)} bytes of {content_type}")
            return f"{status}, {len(body)} bytes"

        return ask

    def scraped() -> str:
        deadline = time.monotonic() + PROMETHEUS_TIMEOUT_S
        while True:
            targets = json.loads(_get(f"{prometheus_url}/api/v1/targets")[2])["data"]["activeTargets"]
            states = {target["scrapeUrl"]: f"{target['health']} {target['lastError']}".strip() for target in targets}
            if states and set(states.values()) == {"up"}:
                return f"scraping {', '.join(states)}"
            if time.monotonic() > deadline:
                raise ValueError(f"targets after {PROMETHEUS_TIMEOUT_S:.0f} s: {states or 'none'}")
            time.sleep(0.2)

    def chat() -> str:
        model = json.loads(_get(f"{service_url}/v1/models")[2])["data"][0]["id"]
        answer = stream_chat(service_url, model, "Name the three primary colors.")
        return f"{answer['num_tokens']} tokens, first after {answer['first_s']:.2f} s: {str(answer['text'])[:60]!r}"

    def unknown_route() -> str:
        try:
            status, _, _ = _get(f"{service_url}/no/such/route")
        except urllib.error.HTTPError as error:
            message = json.loads(error.read())["error"]["message"]
            if error.code != 404:
                raise ValueError(f"HTTP {error.code}") from error
            return f"404: {message}"
        raise ValueError(f"HTTP {status} for a route that does not exist")

    check("chat, streamed", chat)
    check("GET /v1/models", json_with(f"{service_url}/v1/models", "object", "data"))
    check("GET /health", json_with(f"{service_url}/health"))
    check("GET /ready", json_with(f"{service_url}/ready"))
    check("GET /info", json_with(f"{service_url}/info"))
    check("GET /stats", json_with(f"{service_url}/stats"))
    check("GET /metrics", text_with(f"{service_url}/metrics", "pellucid_time_to_first_token_seconds_bucket"))
    check("GET /no/such/route", unknown_route)
    if dashboard_url:
        check("dashboard page", text_with(f"{dashboard_url}/", "<html"))
        check("dashboard health", json_with(f"{dashboard_url}/healthz"))
    if prometheus_url:
        check("prometheus targets", scraped)
    return results
