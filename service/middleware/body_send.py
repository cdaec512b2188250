"""The server's own `send`, past all layers, for the middle of a body: none of them looks at it, and each costs time.

The head and the last message of a body go through the layers, which count and remember them.
"""

from starlette.types import Scope, Send

_KEY = "pellucid.body_send"


def offer_body_send(scope: Scope, send: Send) -> None:
    """Keep the server's `send` for `body_send`; called by the outermost layer."""
    scope[_KEY] = send


def body_send(scope: Scope, send: Send) -> Send:
    """Return the server's `send`, or the given one where no layer stands in between."""
    found: Send = scope.get(_KEY, send)
    return found
