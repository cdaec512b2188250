"""The JSON Schema of the trace file, generated from the event types, so that it can't say something else."""

import json
import sys

import msgspec

from engine.events import AnyEvent
from observability.snapshot import SNAPSHOT_TYPES, SnapshotRecord
from observability.trace_codec import KNOWN_EVENT_TYPES, EventOfAnyType
from observability.trace_header import SCHEMA_NAME, SCHEMA_VERSION, TraceHeader


def trace_schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of one line of a trace file: header, snapshot, or event known to this version.

    An unknown event matches `unknown_event`: a loader keeps it, a validator may want to say so.
    """
    (header, snapshot, event, _), components = msgspec.json.schema_components(
        [TraceHeader, SnapshotRecord, AnyEvent, EventOfAnyType], ref_template="#/$defs/{name}"
    )
    definitions = dict(sorted(components.items()))
    definitions["header"] = header
    definitions["snapshot_record"] = snapshot
    definitions["known_event"] = event
    unknown: dict[str, object] = {
        "$ref": "#/$defs/EventOfAnyType",
        "properties": {"type": {"not": {"enum": sorted(KNOWN_EVENT_TYPES | SNAPSHOT_TYPES)}}},
    }
    definitions["unknown_event"] = unknown
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{SCHEMA_NAME} version {SCHEMA_VERSION}: one line",
        "anyOf": [
            {"$ref": f"#/$defs/{name}"} for name in ("header", "snapshot_record", "known_event", "unknown_event")
        ],
        "$defs": definitions,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(trace_schema(), indent=1) + "\n")
