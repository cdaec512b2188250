"""The schema file says what the types say, and what is written matches it."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from observability.trace_codec import encode_event
from observability.trace_schema import trace_schema
from tests.support.trace_script import header, one_request

SCHEMA_FILE = Path(__file__).parents[2] / "observability" / "schemas" / "trace.schema.json"


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def test_schema_file_agrees_with_the_types() -> None:
    """After changing an event: python -m observability.trace_schema > observability/schemas/trace.schema.json."""
    assert json.loads(SCHEMA_FILE.read_text()) == trace_schema()


def test_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(trace_schema())


def test_every_line_written_is_valid() -> None:
    check = validator()
    check.validate(json.loads(msgspec.json.encode(header())))
    for event in one_request().events:
        check.validate(json.loads(encode_event(event)))


def test_unknown_event_is_valid_and_a_broken_known_one_is_not() -> None:
    check = validator()
    check.validate({"type": "thought", "seq": 1, "t": 0.5, "step": 0, "mood": "calm"})
    with pytest.raises(jsonschema.ValidationError):
        check.validate({"type": "block_freed", "seq": 1, "t": 0.5, "step": 0})
