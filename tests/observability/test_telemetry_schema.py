"""The schema files say what the forms say."""

import json
from pathlib import Path

import jsonschema
import pytest

from observability.telemetry_schema import SCHEMAS
from service.config_view import config_schema

FOLDER = Path(__file__).parents[2] / "observability" / "schemas"
GENERATED = {**SCHEMAS, "config": config_schema}


@pytest.mark.parametrize("name", GENERATED)
def test_schema_file_agrees_with_the_forms(name: str) -> None:
    """After changing a form: see the module docstring of observability.telemetry_schema or service.config_view."""
    schema = GENERATED[name]()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8")) == schema
