"""The command line in-process: bad models, bad flags, help, the small commands."""

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.cli import COMMANDS, main
from service.serve_flags import ENGINE_FLAGS, SERVICE_FLAGS
from tests.support.gguf_bytes import header, tiny_llama
from tests.support.scripted_service import emits, serve

WHOLE = tiny_llama().encode()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    """Return exit code, stdout and the lines of stderr."""
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:40],
        b"GGUX" + WHOLE[4:],
        tiny_llama("nonesuch").encode(),
        b"",
        header(),
        None,
    ],
    ids=["truncated", "cut header", "magic", "architecture", "empty", "no metadata", "absent"],
)
def test_serve_of_a_bad_model_is_one_line_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    code, out, lines = run(capsys, "serve", "--log-level", "error", "--model", str(path))
    assert (code, out) == (2, "")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert "Traceback" not in lines[0]


@pytest.mark.parametrize(
    "flags",
    [
        ["--max-queue", "x"],
        ["--max-queue", "-1"],
        ["--port", "70000"],
        ["--dtype", "int3"],
        ["--block-size", "0"],
        ["--api-key-file", "/nonexistent/keys"],
        ["--kv-cache-bytes", "lots"],
        ["--trace-dir", "/proc/nowhere"],
        ["--log-level", "loud"],
    ],
    ids=" ".join,
)
def test_bad_flag_is_one_line_that_names_it_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], flags: Sequence[str]
) -> None:
    code, out, lines = run(capsys, "serve", *flags)
    assert (code, out, len(lines)) == (2, "", 1)
    assert flags[0].removeprefix("--").replace("-", "_") in lines[0].replace("-", "_")


def test_bad_variable_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_MAX_N", "many")
    code, _, lines = run(capsys, "serve")
    assert code == 2
    assert "PELLUCID_MAX_N" in lines[0]


def test_serve_help_names_every_flag_with_default_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["serve", "--help"])
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for flag in (*ENGINE_FLAGS, *SERVICE_FLAGS):
        assert f"{flag.name} " in text
        assert flag.variable in text.replace(" ", "")
    assert text.count("(default: ") == len(ENGINE_FLAGS) + len(SERVICE_FLAGS)


def test_help_lists_the_commands_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert all(f"    {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["serve", "--nonsense"], ["trace"], ["trace", "check"]])
def test_bad_usage_is_exit_code_two(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: pellucid" in capsys.readouterr().err


def test_trace_check_of_no_trace_is_exit_code_two(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("{}\n")
    code, out, lines = run(capsys, "trace", "check", str(path))
    assert (code, out, len(lines)) == (2, "", 1)


def test_trace_check_of_an_absent_file_is_one_clear_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "nope.jsonl"
    code, out, lines = run(capsys, "trace", "check", str(path))
    assert (code, out, lines) == (2, "", [f"error: {path}: {os.strerror(errno.ENOENT)}"])


def test_chat_asks_one_question_and_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(script=emits("ok 🫠".encode())) as served:
        assert run(capsys, "chat", "--url", served.url, "--system", "be brief", "hi", "there") == (0, "ok 🫠\n", [])


def test_chat_says_in_one_line_what_the_server_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(script=emits(b"ok")) as served:
        code, _, lines = run(capsys, "chat", "--url", served.url + "/v1", "--chat-model", "other", "hi")
    assert code == 1
    assert lines == ["error: `model` must be one of scripted, got other"]


def test_chat_without_a_server_is_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, lines = run(capsys, "chat", "--url", "http://127.0.0.1:1", "hi")
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith("error: no server answers at http://127.0.0.1:1")


def test_serve_on_a_busy_port_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, lines = run(capsys, "serve", "--log-level", "error", "--model", "random:tiny", "--port", str(port))
    assert code == 1
    assert lines == [f"error: can't listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}"]


def test_chat_talks_until_it_is_told_to_exit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter(["hi", "", "/new", "again", "/exit"])
    monkeypatch.setattr("builtins.input", lambda *_: next(said))
    with serve(script=emits(b"ok")) as served:
        code, out, _ = run(capsys, "chat", "--url", served.url)
    assert code == 0
    assert out.count("› ok\n") == 2
    assert "a new conversation" in out


def test_models_list_is_json_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, lines = run(capsys, "models", "list", "--json")
    answer: Any = msgspec.json.decode(out)
    assert (code, lines) == (0, [])
    assert answer["models"]
