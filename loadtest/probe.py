"""The first words with a server under test: does it answer, what is its model called, how long are its tokens."""

from dataclasses import dataclass
from typing import Any

import httpx

from loadtest.errors import TargetError
from loadtest.prompt_text import CHARACTERS_PER_TOKEN
from loadtest.request_record import RequestRecord
from loadtest.stream_client import StreamClient
from loadtest.target import Target
from loadtest.tls import tls_context

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Probe:
    """What one unmeasured request showed."""

    model: str
    characters_per_token: float


async def probe(target: Target, prompt: str, *, api_key: str) -> Probe:
    """Send one request for one token and return what it showed.

    Args:
        prompt: about as long as those of the load, so that what the chat template adds is spread as it will be.

    Raises:
        TargetError: nobody answers, or not as a server of this kind does.
    """
    model = target.model or await _first_model(target, api_key)
    record = RequestRecord([], 0.0)
    await client(target, api_key).send(record, body(target, model, prompt, max_tokens=1))
    if record.error:
        raise TargetError(f"{target.endpoint_url} gave no answer to a first request: {record.error}")
    if not record.num_prompt_tokens:
        return Probe(model, CHARACTERS_PER_TOKEN)
    return Probe(model, len(prompt) / record.num_prompt_tokens)


def client(target: Target, api_key: str) -> StreamClient:
    """Return what sends requests to the target."""
    return StreamClient(
        target.endpoint_url,
        {},
        api_key=api_key,
        connect_timeout_s=target.connect_timeout_s,
        idle_timeout_s=target.idle_timeout_s,
    )


def body(target: Target, model: str, prompt: str, *, max_tokens: int, **extra: Any) -> dict[str, Any]:
    """Return a request's body for the target's endpoint."""
    content: dict[str, Any] = (
        {"messages": [{"role": "user", "content": prompt}]} if target.endpoint == "chat" else {"prompt": prompt}
    )
    return {"model": model, **content, "max_tokens": max_tokens, "stream_options": {"include_usage": True}, **extra}


async def _first_model(target: Target, api_key: str) -> str:
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    url = f"{target.base}/v1/models"
    try:
        verify = tls_context(url) or True
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers, trust_env=False, verify=verify) as http:
            response = await http.get(url)
        if response.status_code != 200:
            raise TargetError(f"{url} answered {response.status_code}")
        return str(response.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise TargetError(f"{url} names no model: {error}; is a server running there?") from None
