"""The recorded answers of clients/testdata and what every client makes of them."""

import json

from tests.clients.languages import CLIENTS, Run

TESTDATA = CLIENTS / "testdata"
TRACE_ID = "0123456789abcdef0123456789abcdef"
EXPECTED = {
    name: Run(entry["exit"], entry["stdout"], entry["stderr"])
    for name, entry in json.loads((TESTDATA / "expected.json").read_text()).items()
}


def recording(name: str) -> bytes:
    """Return the bytes of one recorded answer, head and body."""
    return (TESTDATA / f"{name}.http").read_bytes()
