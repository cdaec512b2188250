"""JSON answers of the operations routes."""

from typing import Any

import msgspec
from starlette.responses import Response


def json_response(value: Any, *, status: int = 200) -> Response:
    """Return `value` as a JSON answer; msgspec encodes structs, dataclasses and plain data."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
