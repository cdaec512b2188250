"""A small client of the chat route, for the terminal."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from engine.errors import PellucidError

CONNECT_TIMEOUT_S = 5.0
SILENCE_TIMEOUT_S = 120.0


class ChatFailedError(PellucidError):
    """The server refused or broke off; `message` is what it said."""


class ChatClient:
    """Streams answers of one server; a context manager.

    Args:
        url: where the server listens, with or without `/v1`.
        api_key: sent when not empty.
        model: the name to ask for; "" leaves it to the server.
        temperature, max_tokens: of every answer.

    Attributes:
        last_speed: of the last complete answer, in words; "" when the server didn't say.
    """

    def __init__(self, url: str, *, api_key: str, model: str, temperature: float, max_tokens: int) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(
            base_url=url.rstrip("/").removesuffix("/v1"),
            headers=headers,
            timeout=httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )
        self._fields: dict[str, Any] = {
            "temperature": temperature,
            "max_tokens": max_tokens,
            "stream": True,
            "timings": True,
            **({"model": model} if model else {}),
        }
        self.last_speed = ""

    def __enter__(self) -> "ChatClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def stream(self, messages: Sequence[dict[str, Any]]) -> Iterator[str]:
        """Yield the pieces of one answer.

        Raises:
            ChatFailedError: the server can't be reached, refused, failed, or ended the stream before the answer was
                complete.
            httpx.HTTPError: the connection broke.
        """
        self.last_speed = ""
        body = {**self._fields, "messages": list(messages)}
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise ChatFailedError(_error_message(response.text, response.status_code))
                yield from self._pieces(response.iter_lines())
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"no server answers at {self._http.base_url} ({error}); is it running? --url names another"
            raise ChatFailedError(message) from None

    def _pieces(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            chunk = json.loads(data)
            if "error" in chunk:
                raise ChatFailedError(chunk["error"]["message"])
            self._note_timings(chunk.get("timings"))
            for choice in chunk["choices"]:
                piece = choice["delta"].get("content")
                if piece:
                    yield piece
        raise ChatFailedError("the connection ended before the answer was complete")

    def _note_timings(self, timings: dict[str, Any] | None) -> None:
        if timings and "predicted_per_second" in timings:
            self.last_speed = f"{timings['predicted_n']} tokens, {timings['predicted_per_second']:.1f} per second"


def _error_message(text: str, status: int) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}"
