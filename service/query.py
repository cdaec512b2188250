"""Numbers in query strings, checked in one way."""

from typing import Final

from starlette.requests import Request

from engine.errors import InvalidRequestError
from service.errors import clip

MAX_NUMBER: Final = 10**18 - 1
_MAX_DIGITS: Final = 18


def is_number(text: str) -> bool:
    """Return whether this is a whole number 0..MAX_NUMBER, in plain digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def query_number(request: Request, name: str, *, default: int, low: int = 0, high: int = MAX_NUMBER) -> int:
    """Return a whole number of the query string, the default if it isn't given or empty.

    Raises:
        InvalidRequestError: it is no number or doesn't lie in low..high.
    """
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not is_number(text) or not low <= int(text) <= high:
        raise InvalidRequestError(f"`{name}` must lie in {low}..{high}, got {clip(text)}", param=name)
    return int(text)
