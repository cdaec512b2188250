"""The page's ES modules under `node --test`."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STATIC = HERE.parents[1] / "dashboard" / "static"
TEMPLATES = HERE.parents[1] / "dashboard" / "templates"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_modules_pass_their_node_tests() -> None:
    files = sorted(str(path) for path in (HERE / "js").rglob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout or "fail 0" in done.stdout


def test_page_loads_nothing_from_elsewhere_and_holds_no_inline_code() -> None:
    for path in [*TEMPLATES.glob("*.html"), *STATIC.rglob("*.css"), *STATIC.rglob("*.js"), *STATIC.rglob("*.svg")]:
        text = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"(?:src|href|url|import|from)\s*[=(]?\s*[\"'(]?\s*(?:https?:)?//", text), path
        if path.suffix == ".html":
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text), path


def test_modules_never_turn_strings_into_markup() -> None:
    for path in STATIC.rglob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        )
