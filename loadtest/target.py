"""The server under test."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests go and how long each may take to say something. It holds no secrets, so it can be shown.

    Attributes:
        url: of the server, with or without `/v1`; http or https.
        model: name in every request; empty asks the server for its first model.
        endpoint: `/v1/chat/completions` or `/v1/completions`.
        connect_timeout_s: for a connection.
        idle_timeout_s: between two pieces of an answer, the first one included; never for the whole of it.
    """

    url: Annotated[str, Meta(pattern="^https?://.+")]
    model: str = ""
    endpoint: Literal["chat", "completions"] = "chat"
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 5.0
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 120.0

    @property
    def base(self) -> str:
        """The address without `/v1`."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def endpoint_url(self) -> str:
        return self.base + PATHS[self.endpoint]
