"""JSON Schemas of `/stats` and `/telemetry/...`, generated from the forms, so that they can't say something else.

python -m observability.telemetry_schema stats > observability/schemas/stats.schema.json
python -m observability.telemetry_schema telemetry > observability/schemas/telemetry.schema.json
"""

import json
import sys
from typing import Any

import msgspec

from observability.request_form import VERSION as REQUEST_VERSION
from observability.request_form import RequestDetail, RequestTable, StepTable
from observability.stats import SCHEMA, VERSION, stats_schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def telemetry_schema() -> dict[str, Any]:
    """Return the schema (2020-12) of the answers about requests and steps; their `schema` member tells which one."""
    forms, definitions = msgspec.json.schema_components(
        [RequestTable, RequestDetail, StepTable], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": _DIALECT,
        "title": f"pellucid-requests, pellucid-request and pellucid-steps, version {REQUEST_VERSION}",
        "anyOf": list(forms),
        "$defs": dict(sorted(definitions.items())),
    }


SCHEMAS = {
    "stats": lambda: {"$schema": _DIALECT, "title": f"{SCHEMA} version {VERSION}", **stats_schema()},
    "telemetry": telemetry_schema,
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCHEMAS[sys.argv[1]](), indent=1) + "\n")
