"""Scenarios: a server and a load in a TOML file."""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from loadtest.arrivals import Replay
from loadtest.errors import PlanError
from loadtest.lengths import FromFile
from loadtest.plan import LoadPlan
from loadtest.target import Target


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a scenario file holds.

    Attributes:
        name, description: for people.
        target: the server.
        load: the plan.
        min_attainment: the load has failed its purpose when a stage attains less; None checks nothing.
    """

    name: str
    description: str = ""
    target: Target
    load: LoadPlan
    min_attainment: Annotated[float, Meta(gt=0, le=1)] | None = None


def read_scenario(path: Path) -> Scenario:
    """Return the scenario of a file; files that it names are looked for beside it.

    Raises:
        PlanError: it can't be read, isn't TOML, or says something that can't be; the message names the place.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlanError(f"the scenario {path} can't be read: {error}") from None
    try:
        scenario = msgspec.convert(content, Scenario)
    except msgspec.ValidationError as error:
        raise PlanError(f"{path}: {error}") from None
    return msgspec.structs.replace(scenario, load=_beside(scenario.load, path.parent))


def _beside(plan: LoadPlan, folder: Path) -> LoadPlan:
    """Return the plan with the files that it names as paths from `folder`."""
    replace = msgspec.structs.replace
    if isinstance(plan.arrivals, Replay):
        plan = replace(plan, arrivals=replace(plan.arrivals, file=str(folder / plan.arrivals.file)))
    if isinstance(plan.prompt_tokens, FromFile):
        plan = replace(plan, prompt_tokens=FromFile(file=str(folder / plan.prompt_tokens.file)))
    if isinstance(plan.output_tokens, FromFile):
        plan = replace(plan, output_tokens=FromFile(file=str(folder / plan.output_tokens.file)))
    return plan
