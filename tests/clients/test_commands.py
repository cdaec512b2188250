"""The clients as commands: how they start, what reaches them, when text comes out, and how they stop."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.clients.builds import CLIENTS, command, require
from tests.clients.languages import LANGUAGES, TIMEOUT_S, WORKER_LANGUAGES, clean_environment, run_process
from tests.clients.recordings import EXPECTED, TESTDATA, TRACE_ID, recording
from tests.clients.replay_server import Answer, replaying

# Java 17 reads its arguments in the encoding of the locale.
LOCALE = {"java": "C.UTF-8"}


def start(language: str, *arguments: str) -> subprocess.Popen[bytes]:
    # As a terminal starts it: whoever runs the tests may ignore interrupts, and that would be inherited.
    return subprocess.Popen(
        [*command(language), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("language", WORKER_LANGUAGES)
def test_text_outside_ascii_passes_through_a_command_in_any_locale(language: str) -> None:
    locale = {"LC_ALL": LOCALE.get(language, "C"), "PELLUCID_MODEL": "é"}
    with replaying(Answer((recording("split_utf8"),))) as server:
        arguments = ("chat-stream", "--url", server.url, "--trace-id", TRACE_ID, "--prompt", "Grüße 🎉")
        seen = run_process(language, *arguments, environment=locale)
    assert seen == EXPECTED["split_utf8"]
    assert server.requests[0].body.decode().startswith('{"model":"é","messages":[{"role":"user","content":"Grüße 🎉"}]')


def test_java_prints_utf8_in_a_locale_that_has_none() -> None:
    with replaying(Answer((recording("split_utf8"),))) as server:
        arguments = ("chat-stream", "--url", server.url, "--trace-id", TRACE_ID)
        assert run_process("java", *arguments, environment={"LC_ALL": "C"}) == EXPECTED["split_utf8"]


@pytest.mark.parametrize("language", WORKER_LANGUAGES)
def test_command_ends_with_the_exit_code_and_line_of_its_failure(language: str) -> None:
    with replaying(Answer((recording("error_in_the_middle"),))) as server:
        arguments = ("chat-stream", "--url", server.url, "--trace-id", TRACE_ID)
        assert run_process(language, *arguments) == EXPECTED["error_in_the_middle"]
    seen = run_process(language, "talk")
    assert (seen.code, seen.stdout) == (2, "")
    assert seen.stderr.startswith("error: unknown program talk; one of ")


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_comes_out_before_the_answer_is_whole(language: str) -> None:
    data = recording("usage_chunk")
    middle = data.index(b"there") - 200
    has_seen_text = threading.Event()
    answer = Answer((data[:middle], data[middle:]), before_last=lambda: has_seen_text.wait(TIMEOUT_S))
    with replaying(answer) as server, start(language, "chat-stream", "--url", server.url) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1000)
        has_seen_text.set()
        rest, _ = process.communicate(timeout=TIMEOUT_S)
    assert first == b"Hi"
    assert rest.startswith(b" there\nfinish: stop\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_interrupt_ends_the_request_with_the_command(language: str) -> None:
    data = recording("usage_chunk")
    answer = Answer((data[: data.index(b"there") - 200],), then="hang")
    with replaying(answer) as server, start(language, "chat-stream", "--url", server.url) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1000)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode in (-signal.SIGINT, 130)
    assert first == b"Hi"
    assert rest.strip() == b""
    assert server.num_given_up == 1


@pytest.mark.slow
def test_java_starts_from_its_source_file_and_compiles_only_what_changed(tmp_path: Path) -> None:
    require("javac")
    shutil.copytree(CLIENTS / "java", tmp_path / "java", ignore=shutil.ignore_patterns("build"))
    main = tmp_path / "java" / "build" / "pellucid" / "Main.class"
    stamps = []
    for _ in range(2):
        done = subprocess.run(
            ["java", "-XX:TieredStopAtLevel=1", str(tmp_path / "java" / "Pellucid.java"), "--help"],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (done.returncode, done.stdout.decode()) == (0, (TESTDATA / "help.txt").read_text()), done.stderr
        stamps.append(main.stat().st_mtime_ns)
    assert stamps[0] == stamps[1]


def test_csharp_project_builds_the_same_sources_at_the_language_version_of_the_contract() -> None:
    project = (CLIENTS / "csharp" / "PellucidClient.csproj").read_text()
    assert "<TargetFramework>net8.0</TargetFramework>" in project
    assert "<LangVersion>7.3</LangVersion>" in project
    assert '<Compile Include="src/*.cs" />' in project
