"""The README's own lines, run as they stand; only address and model name are put in."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scripted_service import Served, emits, serve

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8100"
MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(script=emits(b"Paris.")) as running:
        yield running


def block_with(word: str, url: str) -> str:
    """Return the README's code block that contains `word`, pointed at the service under test."""
    blocks = [found[1] for found in re.finditer(r"```\w*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)]
    (block,) = [block for block in blocks if word in block]
    assert ADDRESS in block
    return block.replace(ADDRESS, url).replace(MODEL, "scripted")


@pytest.mark.skipif(shutil.which("curl") is None, reason="missing tool: curl")
def test_readme_curl_line_streams_an_answer_to_its_end(served: Served) -> None:
    done = subprocess.run(
        ["bash", "-c", block_with("curl -N", served.url)], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.rstrip().endswith("data: [DONE]")
    assert '"finish_reason":"stop"' in done.stdout


def test_readme_python_lines_print_the_answer(served: Served) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block_with("from openai import", served.url)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "Paris."


def test_every_address_that_the_documents_give_to_curl_has_a_host() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    commands = [command for page in pages for command in re.findall(r"\bcurl [^`\n]*", page.read_text())]
    assert len(commands) > 3
    assert [command for command in commands if re.search(r"\s:\d", command)] == []
