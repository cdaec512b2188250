"""Reads `/stats` and `/telemetry/requests` of a server, for the terminal."""

from typing import Any

import httpx

from engine.errors import PellucidError

TIMEOUT_S = 10.0


class TelemetryError(PellucidError):
    """The server can't be reached, or refuses; `message` says why."""


class TelemetryClient:
    """One server; a context manager.

    Args:
        url: where it listens, with or without `/v1`.
        api_key: sent when not empty.
    """

    def __init__(self, url: str, *, api_key: str) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(
            base_url=url.rstrip("/").removesuffix("/v1"), headers=headers, timeout=httpx.Timeout(TIMEOUT_S)
        )

    def __enter__(self) -> "TelemetryClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def stats(self) -> dict[str, Any]:
        """Return the body of `/stats` with its shortest history. Raises TelemetryError."""
        return self._get("/stats?history_s=1")

    def requests(self, num_recent: int) -> dict[str, Any]:
        """Return the request table with up to `num_recent` that have ended. Raises TelemetryError."""
        return self._get(f"/telemetry/requests?recent={num_recent}")

    def _get(self, path: str) -> dict[str, Any]:
        try:
            response = self._http.get(path)
            body: dict[str, Any] = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise TelemetryError(f"no server answers at {self._http.base_url} ({error}); --url names another") from None
        if response.status_code != 200:
            raise TelemetryError(f"{path} answered {response.status_code}: {_message(body)}")
        return body


def _message(body: dict[str, Any]) -> str:
    error = body.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else ""
