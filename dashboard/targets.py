"""The servers that the dashboard may talk to: a list given when it starts, never an address that a browser names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from dashboard.forwarded import Forwarded, Kind

OWN = "service"

TARGET_ROUTES = (
    Forwarded("/info"),
    Forwarded("/v1/models"),
    Forwarded("/v1/chat/completions", "POST", Kind.STREAMED, None),
)

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class TargetError(ValueError):
    """A target that can't be used; the message names the argument."""


@dataclass(frozen=True, slots=True)
class Target:
    """One server of the list.

    Attributes:
        name: in the dashboard's URLs and on the page.
        url: of the server, without a path's `/v1`.
        key_variable: environment variable that holds its API key; "" when it needs none.
        api_key: what that variable held; it goes to this server only, never to a browser.
    """

    name: str
    url: str
    key_variable: str = ""
    api_key: str = field(default="", repr=False)

    def client(self, *, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
        """Return a client bound to the server: it follows no redirects and takes no proxy from the environment."""
        headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=5.0,
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None),
        )


def make_targets(urls: Sequence[str], keys: Sequence[str], environment: Mapping[str, str]) -> tuple[Target, ...]:
    """Return the targets of `name=url` and `name=VARIABLE` arguments, in the order of the first.

    Raises:
        TargetError: an argument in another form, a name twice or unknown, a URL that is more than a server's address, a
            variable that is not set.
    """
    variables = dict(_pair("--target-key", argument) for argument in keys)
    targets: dict[str, Target] = {}
    for argument in urls:
        name, url = _pair("--target", argument)
        if name in targets or name == OWN:
            raise TargetError(f"`--target` names must differ and can't be `{OWN}`, got {name} again")
        variable = variables.pop(name, "")
        targets[name] = Target(name, server_address("--target", url), variable, _key(name, variable, environment))
    if variables:
        raise TargetError(f"`--target-key` must name a target, got {next(iter(variables))}")
    return tuple(targets.values())


def server_address(argument: str, url: str) -> str:
    """Return an http(s) URL without its last slash and `/v1`; raises TargetError for one that holds more."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or any(c.isspace() or not c.isprintable() for c in url):
        raise TargetError(f"`{argument}` must be an http(s) URL, got {url}")
    if parts.username is not None or parts.query or parts.fragment:
        raise TargetError(f"`{argument}` must hold no user, query or fragment, got one in the URL of {parts.hostname}")
    return url.rstrip("/").removesuffix("/v1")


def _pair(argument: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not value or not _NAME.fullmatch(name):
        raise TargetError(f"`{argument}` must be name=value with a name of a-z, 0-9, - and _, got {text}")
    return name, value


def _key(name: str, variable: str, environment: Mapping[str, str]) -> str:
    if not variable:
        return ""
    key = environment.get(variable, "") if _VARIABLE.fullmatch(variable) else ""
    if not key or not key.isascii() or not key.isprintable():
        raise TargetError(
            f"`--target-key` of {name} must name an environment variable that holds a key, got {variable}"
        )
    return key
