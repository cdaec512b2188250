"""Refuses requests for other host names than this server's own.

A page of another site whose name is made to point at this machine (DNS rebinding) is of the same origin as what it
then reads, so neither `sec-fetch-site` nor CORS holds it back; the `Host` header does, which no script can set.
"""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.json_post import error_response

_HOST_HEADER = re.compile(r"(?P<name>\[[0-9a-f:.%]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_HOST_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True)
class HostRule:
    """Which host names are this server's own.

    Attributes:
        names: in lower case, without ports and brackets, besides those of this machine.
        takes_any: whether every name is, as when it listens on all addresses and nobody said what it is called.
    """

    names: frozenset[str] = frozenset()
    takes_any: bool = False

    def allows(self, host_header: str) -> bool:
        """Return whether a request with this `Host` header is meant for this server."""
        if self.takes_any:
            return True
        found = _HOST_HEADER.fullmatch(host_header)
        if found is None:
            return False
        name = _plain(found["name"])
        return name in self.names or is_loopback(name)


THIS_MACHINE = HostRule()


def host_rule(bound: str, allowed: Collection[str]) -> HostRule:
    """Return the rule for a server that is bound to an address.

    Bound to this machine, or told names, it is known by `allowed`, by the bound host and by the names of this machine;
    bound to another address and told nothing, by any name, since what a network calls it can't be known here.

    Args:
        bound: name or address that the server was told to listen on.
        allowed: names and addresses that people use for it.

    Raises:
        ValueError: an allowed one is no host name or address.
    """
    bound = _plain(bound)
    names = {_plain(name) for name in allowed}
    for name in names:
        if not (_HOST_NAME.fullmatch(name) or _is_address(name)):
            raise ValueError(f"must be a host name or an address without a port, got {name}")
    return HostRule(frozenset({bound, *names}), takes_any=not names and not is_loopback(bound))


def is_loopback(name: str) -> bool:
    """Return whether a lower-case name or address can only mean the machine that it is used on."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _plain(name: str) -> str:
    return name.strip("[]").lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostGuard:
    """Plain ASGI: 421 for a request that is meant for another host.

    Starlette's TrustedHostMiddleware knows neither 127.0.0.0/8 nor `*.localhost` as a whole, and says 400.
    """

    def __init__(self, app: ASGIApp, rule: HostRule) -> None:
        self._app = app
        self._rule = rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._rule.allows(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        message = "this server isn't known by that host name; `--allowed-host` of the dashboard adds one"
        await error_response(421, "permission_error", message)(scope, receive, send)
