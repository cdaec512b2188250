"""The JavaScript client's modules under `node --test`, and what a browser would make of them."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.builds import CLIENTS, require

HERE = Path(__file__).resolve().parent
MODULES = CLIENTS / "javascript"


@pytest.mark.slow
def test_modules_pass_their_node_tests() -> None:
    require("node")
    files = sorted(str(path) for path in (HERE / "js").glob("*.test.mjs"))
    done = subprocess.run(
        ["node", "--no-warnings", "--test", *files], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail 0" in done.stdout


def test_client_module_and_what_it_imports_use_nothing_of_nodes() -> None:
    waiting, seen = ["client.mjs"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        text = (MODULES / name).read_text()
        imported = re.findall(r'from "([^"]+)"', text)
        assert all(path.startswith("./") for path in imported), name
        assert not re.search(r"\b(?:process|require|Buffer)\b[.(]", text), name
        waiting += [path[2:] for path in imported if path[2:] not in seen]
    assert {"client.mjs", "sse.mjs", "answer.mjs"} <= seen
