"""From a JSON object to a checked request: names, shapes, then limits; every refusal names its parameter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from engine.errors import InvalidRequestError
from service.errors import clip
from service.protocol.fields import WireModel
from service.protocol.parameters import check_parameters

M = TypeVar("M", bound=WireModel)

_RULES = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "finite_number": "must be finite",
}


@dataclass(frozen=True)
class Parsed(Generic[M]):
    """A checked body and the names of the fields in it that nobody knows."""

    request: M
    ignored: list[str]


def parse_request(
    model: type[M],
    body: Mapping[str, Any],
    *,
    strict: bool,
    also_unsupported: Mapping[str, tuple[Any, ...]] | None = None,
) -> Parsed[M]:
    """Check a JSON object against a wire model; explicit null counts as absent.

    Raises:
        InvalidRequestError: the first thing wrong, by name.
    """
    given = {name: value for name, value in body.items() if value is not None}
    ignored = check_parameters(
        given, known=model.model_fields.keys(), strict=strict, also_unsupported=also_unsupported or {}
    )
    try:
        return Parsed(model.model_validate(given), ignored)
    except ValidationError as error:
        raise _as_invalid_request(error) from None


def _as_invalid_request(error: ValidationError) -> InvalidRequestError:
    """Say what the most specific failure is; alternatives of one union at one place are named together."""
    details = error.errors(include_url=False, include_context=True)
    deepest = max(details, key=lambda detail: len(_path(detail)))
    if len(_path(deepest)) > len(_path(details[0])) and _path(deepest)[:1] != _path(details[0])[:1]:
        deepest = details[0]
    path = _path(deepest)
    rules = list(dict.fromkeys(_rule(detail) for detail in details if _path(detail) == path))
    param = _spell(path)
    rule = " or ".join([rules[0], *(rule.removeprefix("must be ") for rule in rules[1:])])
    shown = "" if deepest["type"] == "missing" else f", got {_show(deepest['input'])}"
    return InvalidRequestError(f"`{param}` {rule}{shown}", param=param)


def _path(detail: ErrorDetails) -> tuple[int | str, ...]:
    """The place of a failure without the names of union branches that pydantic puts into it."""
    return tuple(part for part in detail["loc"] if not (isinstance(part, str) and _is_branch(part)))


def _is_branch(part: str) -> bool:
    return part in ("str", "int") or part.startswith(("list[", "dict["))


def _spell(path: tuple[int | str, ...]) -> str:
    spelled = ""
    for part in path:
        if isinstance(part, int):
            spelled += f"[{part}]"
        else:
            spelled += f".{clip(part)}" if spelled else clip(part)
    return spelled


def _rule(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _RULES:
        return _RULES[kind]
    if kind == "literal_error":
        return f"must be {context['expected']}"
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']}"
    if kind == "too_short":
        return f"must have at least {context['min_length']} entry"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters"
    return detail["msg"].replace("Input should be", "must be")


def _show(value: object) -> str:
    return clip(msgspec.json.encode(value).decode()) if not isinstance(value, WireModel) else "an object"
