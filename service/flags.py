"""Command-line flags that are environment variables too: one table gives both, their defaults and their help."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError

PREFIX = "PELLUCID_"

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Flag:
    """One setting.

    Attributes:
        name: the flag with its dashes; `--max-queue` is also PELLUCID_MAX_QUEUE.
        kind: makes the value from text; raises ValueError.
        default: used when neither flag nor variable is given.
        text: help, without the default.
        choices: allowed values, if only some are.
        shown_default: what the help says for a default that means something else.
    """

    name: str
    kind: Callable[[str], Any]
    default: Any
    text: str
    choices: tuple[str, ...] = ()
    shown_default: str = ""

    @property
    def key(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        return PREFIX + self.key.upper()

    @property
    def default_text(self) -> str:
        return self.shown_default or ("off" if self.default is False else str(self.default))

    @property
    def help(self) -> str:
        return f"{self.text} (default: {self.default_text}; ${self.variable})".replace("%", "%%")

    def parse(self, text: str, source: str) -> Any:
        """Return the value of a text from flag or variable; raises ConfigError naming `source`."""
        if self.choices and text not in self.choices:
            raise ConfigError(f"{source} must be one of {', '.join(self.choices)}, got {text!r}")
        try:
            return self.kind(text)
        except ValueError as error:
            raise ConfigError(f"{source} can't be {text!r}: {error}") from None


def switch(text: str) -> bool:
    """Parse on/off as environment variables write it."""
    if text.strip().lower() not in _WORDS:
        raise ValueError("give 1 or 0")
    return _WORDS[text.strip().lower()]


def num_bytes(text: str) -> int:
    """Parse a size such as 1073741824, 512M or 2G."""
    digits = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = digits[-1:] if digits[-1:] in ("k", "m", "g") else ""
    return int(digits.removesuffix(unit)) * _UNITS[unit]


def words(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def add_flags(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", flags: Iterable[Flag]) -> None:
    """Add the flags as text; `resolve` parses them together with the environment."""
    for flag in flags:
        if flag.kind is switch:
            parser.add_argument(flag.name, action="store_const", const="1", default=None, help=flag.help)
        else:
            metavar = "{" + ",".join(flag.choices) + "}" if flag.choices else flag.key.rsplit("_", 1)[-1].upper()
            parser.add_argument(flag.name, default=None, metavar=metavar, help=flag.help)


def resolve(flags: Iterable[Flag], args: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return every setting by key: the flag, else its variable if that isn't empty, else the default.

    Raises:
        ConfigError: a value that can't be parsed; names the flag or the variable.
    """
    values: dict[str, Any] = {}
    for flag in flags:
        given = getattr(args, flag.key, None)
        variable = environment.get(flag.variable, "")
        if given is not None:
            values[flag.key] = flag.parse(given, flag.name)
        elif variable:
            values[flag.key] = flag.parse(variable, flag.variable)
        else:
            values[flag.key] = flag.default
    return values
