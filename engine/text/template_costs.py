"""What an operation of a template may produce, computed before it runs.

A few characters of template can ask for terabytes (`'x' * 10**12`, `s.replace('', s)`, a list that holds itself twice,
forty times over). Each function here raises TemplateBudgetExceededError before such an operation begins, and counts
what smaller ones make. The bounds are upper bounds of the result's size in characters or items.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from engine.text.template_budget import CURRENT_BUDGET, MAX_INTEGER_BITS, MAX_VALUE_SIZE, TemplateBudgetExceededError

_MAX_WIDTH = 100_000
_MAX_NODES = 200_000
_WIDE_FORMAT = re.compile(r"\d{6}")


def check_operation(operator: str, left: object, right: object) -> None:
    """Check `left operator right` for + * ** %."""
    if operator == "+":
        if _is_sized(left) and _is_sized(right):
            CURRENT_BUDGET.get().value(len(left) + len(right))
    elif operator == "*":
        for sized, times in ((left, right), (right, left)):
            if _is_sized(sized) and isinstance(times, int):
                CURRENT_BUDGET.get().value(len(sized) * max(times, 0))
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
    elif operator == "**":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * max(right, 0))
    elif isinstance(left, str):
        check_string_method("format", left, right if isinstance(right, tuple) else (right,))


def check_string_method(name: str, owner: str, arguments: Iterable[Any]) -> None:
    """Check a call of the string method (or the filter) `name` with `arguments` on `owner`."""
    given = list(arguments)
    if any(isinstance(argument, int) and abs(argument) > _MAX_WIDTH for argument in given):
        raise TemplateBudgetExceededError(f"it gives `{name}` a number above {_MAX_WIDTH}")
    texts = [argument for argument in given if isinstance(argument, str)]
    size = len(owner) + sum(map(len, texts))
    if name == "replace" and len(texts) >= 2:
        size = len(owner) + owner.count(texts[0]) * len(texts[1])
    elif name == "join":
        parts = given[0] if given and isinstance(given[0], list | tuple) else []
        size = sum(len(part) for part in parts if isinstance(part, str)) + len(parts) * len(owner)
    elif name == "expandtabs":
        size = len(owner) + owner.count("\t") * _MAX_WIDTH
    elif name == "indent":
        lines = owner.count("\n") + 1
        size = len(owner) + lines * max(
            (a if isinstance(a, int) else len(a) for a in given if a is not None), default=4
        )
    elif name in ("format", "format_map"):
        if _WIDE_FORMAT.search(owner):
            raise TemplateBudgetExceededError("it formats with a width of six digits or more")
        num_fields = owner.count("{") + owner.count("%")
        size = len(owner) + num_fields * sum(map(num_nodes, given))
    CURRENT_BUDGET.get().value(size)


def num_nodes(value: object) -> int:
    """Return how many characters, items and objects `value` has in all; raise where they are too many.

    Counts what is reachable by several ways as often as it would be printed.
    """
    num_parts, num_chars, waiting = 0, 0, [value]
    while waiting:
        item = waiting.pop()
        num_parts += 1
        if isinstance(item, str):
            num_chars += len(item)
        elif isinstance(item, Mapping):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        if num_parts + len(waiting) > _MAX_NODES or num_chars > MAX_VALUE_SIZE:
            raise TemplateBudgetExceededError(
                f"it prints or compares a value of more than {_MAX_NODES} parts or {MAX_VALUE_SIZE} characters"
            )
    return num_parts + num_chars


def _is_sized(value: object) -> TypeGuard[str | list[Any] | tuple[Any, ...]]:
    return isinstance(value, str | list | tuple)


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_INTEGER_BITS:
        raise TemplateBudgetExceededError(f"it computes a number of more than {MAX_INTEGER_BITS} bits")
