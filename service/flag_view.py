"""Every flag with what it is set to, who set it, and what it does: the table that the configuration's readers see."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from service.flags import Flag

Source = Literal["flag", "environment", "default"]


class FlagView(msgspec.Struct, frozen=True, kw_only=True):
    """One flag.

    Attributes:
        part: `engine` or `service`.
        flag, variable: its two names.
        value: in effect.
        source: what set it.
        default: as the help says it.
        text: what it does.
        choices: allowed values, if only some are.
    """

    part: Literal["engine", "service"]
    flag: str
    variable: str
    value: bool | int | float | str | list[str]
    source: Source
    default: str
    text: str
    choices: list[str]


def flag_views(
    part: Literal["engine", "service"],
    flags: Iterable[Flag],
    values: Mapping[str, Any],
    args: argparse.Namespace,
    environment: Mapping[str, str],
) -> tuple[FlagView, ...]:
    """Return the flags with the values that `service.flags.resolve` made of the same arguments and environment."""
    return tuple(
        FlagView(
            part=part,
            flag=flag.name,
            variable=flag.variable,
            value=list(values[flag.key]) if isinstance(values[flag.key], tuple) else values[flag.key],
            source=source_of(flag, args, environment),
            default=flag.default_text,
            text=flag.text,
            choices=list(flag.choices),
        )
        for flag in flags
    )


def source_of(flag: Flag, args: argparse.Namespace, environment: Mapping[str, str]) -> Source:
    """Return what set a flag, by the rule of `service.flags.resolve`."""
    if getattr(args, flag.key, None) is not None:
        return "flag"
    return "environment" if environment.get(flag.variable, "") else "default"
