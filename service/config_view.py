"""The body of `GET /telemetry/config`: what the server runs with, secrets hidden; and its JSON Schema.

python -m service.config_view > observability/schemas/config.schema.json
"""

import json
import sys
from dataclasses import fields, is_dataclass
from typing import Any, Final, Literal

import msgspec

from engine.config import EngineConfig
from engine.messages import EngineInfo
from service.flag_view import FlagView
from service.settings import ServiceSettings
from service.version import VERSION as PROJECT_VERSION

SCHEMA: Final[Literal["pellucid-config"]] = "pellucid-config"
VERSION: Final = 1
HIDDEN = "hidden"

# Of ServiceSettings and what it is made of: fields that may hold secrets. Only how many entries there are is shown.
_SECRETS = frozenset({"api_keys", "headers"})


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """Stands for a setting that isn't shown."""

    hidden: Literal["hidden"]
    num_entries: int


class ConfigAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Effective settings.

    Attributes:
        models: names that requests may give.
        engine: what the engine process was started with (engine.config.EngineConfig), by name.
        running: what came of it (engine.messages.EngineInfo); null while it loads.
        service: the HTTP side, by name; a Secret for what may not be seen.
        flags: every flag, its value, what set it and what it does; empty when the server wasn't started by its command.
    """

    schema: Literal["pellucid-config"]
    version: int
    project_version: str
    models: list[str]
    engine: dict[str, Any]
    running: dict[str, Any] | None
    service: dict[str, Any]
    flags: list[FlagView] = []


def config_answer(
    config: EngineConfig, settings: ServiceSettings, *, running: EngineInfo | None, models: tuple[str, ...]
) -> ConfigAnswer:
    """Return what is to be answered."""
    return ConfigAnswer(
        schema=SCHEMA,
        version=VERSION,
        project_version=PROJECT_VERSION,
        models=list(models),
        engine=msgspec.to_builtins(config),
        running=None if running is None else msgspec.to_builtins(running),
        service=_shown(settings),
        flags=list(settings.flags),
    )


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the answer."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{SCHEMA} version {VERSION}",
        **msgspec.json.schema(ConfigAnswer),
    }


def _shown(settings: Any) -> dict[str, Any]:
    """Return a settings object as plain data without its secrets."""
    shown: dict[str, Any] = {}
    for field in fields(settings):
        if field.name == "flags":
            continue
        value = getattr(settings, field.name)
        if field.name in _SECRETS:
            shown[field.name] = Secret(hidden="hidden", num_entries=len(value))
        elif is_dataclass(value):
            shown[field.name] = _shown(value)
        else:
            shown[field.name] = list(value) if isinstance(value, tuple) else value
    return shown


if __name__ == "__main__":
    sys.stdout.write(json.dumps(config_schema(), indent=1) + "\n")
