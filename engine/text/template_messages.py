"""A conversation as chat templates expect it: plain data, contents as text, every string protected."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.errors import InvalidRequestError

_MAX_DEPTH = 100

Protect = Callable[[str], str]


class ToolArguments(dict[str, Any]):
    """A tool call's arguments: an object for templates that walk it or print it with `tojson`, and the client's own
    JSON text for those that join or print it as text.

    Attributes:
        text: the JSON text, protected.
    """

    def __init__(self, fields: dict[str, Any], text: str) -> None:
        super().__init__(fields)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: object) -> str:
        return self.text + other if isinstance(other, str) else NotImplemented

    def __radd__(self, other: object) -> str:
        return other + self.text if isinstance(other, str) else NotImplemented


def template_messages(messages: Sequence[Mapping[str, Any]], protect: Protect) -> list[dict[str, Any]]:
    """Return fresh messages for a template.

    A missing or null content is the empty text. A list of text parts is one text, the parts joined by a newline in
    their order. Other null fields are left out. A tool call's arguments, which clients send as JSON text, are
    ToolArguments where they spell an object.

    Args:
        protect: applied to every string and every key that isn't an identifier.

    Raises:
        InvalidRequestError: a message isn't an object with a role, or its content isn't text.
    """
    if not messages:
        raise InvalidRequestError("`messages` must hold at least one message, got none", param="messages")
    return [_message(message, f"messages[{i}]", protect) for i, message in enumerate(messages)]


def _message(message: object, where: str, protect: Protect) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidRequestError(f"`{where}` must be an object with a `role`", param=where)
    kept = {name: value for name, value in message.items() if value is not None}
    kept["content"] = _content(message.get("content"), f"{where}.content")
    plain = plain_data(kept, protect, param=where)
    assert isinstance(plain, dict)
    if isinstance(kept.get("tool_calls"), list):
        for call, plain_call in zip(kept["tool_calls"], plain["tool_calls"], strict=True):
            _open_arguments(call, plain_call, protect, where)
    return plain


def _content(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(
            f"`{where}` must be text, a list of text parts or null, got {type(content).__name__}", param=where
        )
    texts: list[str] = []
    for i, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise InvalidRequestError(f"`{where}[{i}]` must be a text part, got {kind}", param=f"{where}[{i}]")
        texts.append(part["text"])
    return "\n".join(texts)


def _open_arguments(call: Any, plain_call: Any, protect: Protect, where: str) -> None:
    """Replace the arguments in `plain_call` where they are the JSON text of an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    text = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(text, str):
        return
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):  # not JSON: the template gets the text
        return
    if isinstance(fields, dict):
        plain = plain_data(fields, protect, param=f"{where}.tool_calls")
        plain_call["function"]["arguments"] = ToolArguments(plain, protect(text))


def plain_data(value: Any, protect: Protect, *, param: str, depth: int = 0) -> Any:
    """Return a fresh copy of JSON-like data with protected strings.

    Raises:
        InvalidRequestError: something in it isn't JSON, or it is nested more than 100 deep.
    """
    if depth > _MAX_DEPTH:
        raise InvalidRequestError(f"`{param}` must not be nested more than {_MAX_DEPTH} deep", param=param)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return protect(str(value))
    if isinstance(value, Mapping):
        return {
            _key(name, protect, param): plain_data(item, protect, param=param, depth=depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain_data(item, protect, param=param, depth=depth + 1) for item in value]
    raise InvalidRequestError(f"`{param}` must hold JSON values only, got {type(value).__name__}", param=param)


def _key(name: object, protect: Protect, param: str) -> str:
    if not isinstance(name, str):
        raise InvalidRequestError(f"`{param}` must have text keys, got {type(name).__name__}", param=param)
    return name if name.isidentifier() else protect(name)
