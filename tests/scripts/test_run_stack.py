"""`run_stack.py` and its parts where things go wrong: bad models, busy ports, signals."""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))

from children import Child, StartError  # noqa: E402
from preflight import key_file  # noqa: E402
from run_stack import Stack  # noqa: E402

ENDS_WITH = "import sys; print(sys.argv[2], file=sys.stderr); sys.exit(int(sys.argv[1]))"
INSTALLS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import bootstrap
bootstrap.end_on_signals()
bootstrap._run([sys.executable, "-c", *sys.argv[2:]], what="a step", quiet=False)
"""
STEP_IN_A_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
STEP = "import os, signal, time; print('Downloading', os.getpid(), flush=True); time.sleep(60)"


def child(tmp_path: Path, *command: str) -> Child:
    return Child("service", [sys.executable, *command], "http://127.0.0.1:1/ready", tmp_path / "service.log")


@pytest.mark.parametrize(
    ("code", "said", "message"),
    [
        (2, "error: x.gguf: no such file", "x.gguf: no such file"),
        (1, "error: out of luck", "service ended with exit code 1: out of luck"),
        (2, "", "service ended with exit code 2: no output"),
    ],
)
def test_child_that_ends_while_starting_is_reported_with_its_last_line_and_code(
    tmp_path: Path, code: int, said: str, message: str
) -> None:
    one = child(tmp_path, "-c", ENDS_WITH, str(code), said)
    one.start()
    with pytest.raises(StartError) as refused:
        one.wait_ready(20.0, threading.Event())
    assert (str(refused.value), refused.value.exit_code) == (message, code)


def run_stack(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "run_stack.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_run_stack_with_a_busy_port_fails_before_anything_is_set_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_stack("--port", str(port), "--no-dashboard", "--no-prometheus")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: port {port} is in use; stop what listens there or choose another with --port\n"


@pytest.mark.parametrize("flags", [["--model", "/nonexistent/m.gguf"], ["--port", "70000"]], ids=" ".join)
def test_run_stack_with_a_bad_flag_is_one_line_and_exit_code_two_before_anything_is_set_up(flags: list[str]) -> None:
    done = run_stack(*flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_the_setup_ends_it_and_its_step_in_one_line(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INSTALLS, str(SCRIPTS), STEP_IN_A_CHILD, STEP],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = ""
        while "Downloading" not in line:
            line = process.stdout.readline()
            assert line, "the step never began"
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert errors == "stopped\n"
    assert not is_alive(int(line.split()[-1]))


def is_alive(pid: int) -> bool:
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode:
            return False
    return True


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--max-num-seqs", "4", "--api-key-file", "keys.txt"], "keys.txt"),
        (["--api-key-file=keys.txt"], "keys.txt"),
        (["--max-num-seqs", "4"], ""),
    ],
)
def test_key_file_of_the_service_is_found_for_the_dashboard(flags: list[str], found: str) -> None:
    assert key_file(flags) == found


def test_stop_tells_only_of_children_that_were_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started, waiting = child(tmp_path, "-c", STEP), child(tmp_path, "-c", STEP)
    waiting.name = "dashboard"
    started.start()
    Stack([started, waiting], quiet=False).stop()
    assert capsys.readouterr().out == "[service] stopping\n"
    assert started.poll() == -signal.SIGTERM


def test_second_signal_ends_children_that_drain(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    one = child(tmp_path, "-c", deaf)
    one.start()
    while "deaf" not in one.last_lines():
        time.sleep(0.01)
    stack = Stack([one], quiet=True)
    stack.on_signal(signal.SIGINT, None)
    stopping = threading.Thread(target=stack.stop)
    stopping.start()
    assert one.poll() is None
    stack.on_signal(signal.SIGINT, None)
    stopping.join(timeout=10.0)
    assert one.poll() == -signal.SIGKILL
