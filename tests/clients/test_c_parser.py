"""The C client's reading of responses, under AddressSanitizer and UBSan, cut at every byte and mutated."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.builds import CLIENTS, c_build
from tests.clients.recordings import EXPECTED, TESTDATA, recording
from tests.clients.runs import Run

FUZZ_SECONDS = 3


def sanitized(program: str, *arguments: str, cwd: Path | None = None) -> Run:
    done = subprocess.run(
        [c_build() / "sanitized" / program, *arguments], capture_output=True, timeout=60, cwd=cwd, check=False
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("name", EXPECTED)
def test_recording_cut_at_every_byte_gives_the_expected_output(name: str) -> None:
    seen = sanitized("replay_cuts", str(TESTDATA / f"{name}.http"))
    assert seen.code == 0, seen.stderr
    assert seen.stdout == EXPECTED[name].stdout + EXPECTED[name].stderr
    assert seen.stderr == f"{len(recording(name)) + 1} ways\n"


def test_connection_lost_after_each_byte_succeeds_only_once_done_has_come() -> None:
    data = recording("plain")
    done = data.index(b"[DONE]") + len(b"[DONE]\n\n")
    seen = sanitized("replay_cuts", "--lost", str(TESTDATA / "plain.http"))
    assert seen.stdout == f"0 4\n{done} 0\n"


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        (b"5;" + b"x" * 16000 + b"\r\n", True),
        (b"5;" + b"x" * 17000 + b"\r\n", False),
        (b"0" * 16 + b"5\r\n", False),
        (b"FFFFFFFFFFFFFFFFF\r\n", False),
        (b"-5\r\n", False),
        (b";x\r\n", False),
    ],
)
def test_chunk_size_line_that_is_long_or_odd_is_bounded(tmp_path: Path, line: bytes, is_read: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    (tmp_path / "line.http").write_bytes(head + line + b": hi\n\r\n0\r\n\r\n")
    seen = sanitized("replay_cuts", "--twice", str(tmp_path / "line.http"))
    what = "the stream ended before [DONE]" if is_read else "the answer can't be read: HTTP"
    assert seen.stdout.splitlines()[-1] == f"error: {what}"


def test_fuzz_command_of_the_readme_mutates_the_recordings_without_a_finding() -> None:
    c_build()
    command = ["make", "-s", "-C", str(CLIENTS / "c"), "CC=gcc", "fuzz", f"SECONDS={FUZZ_SECONDS}", "SEED=7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^(\d+) executions, seed 7, no finding$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert int(found.group(1)) > len(EXPECTED)  # the recordings as they are, and mutated ones
