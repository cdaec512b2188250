"""The engines under comparison: each is started, runs cells on request, and says what it used."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from loadtest.closed_loop import LoadRun, LoopShape, run_closed_loop
from loadtest.process_usage import forget_peak, process_tree, usage
from loadtest.request_record import RequestRecord
from loadtest.stream_client import StreamClient
from scripts.serving.workloads import Workload
from service.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
START_S = 600.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class CellUsage:
    """What an arm's processes used during one cell.

    Attributes:
        cpu_s: of the process that was started: the service, where an engine runs in a process of its own.
        children_cpu_s: of its children.
        peak_mib: the sum of the processes' peaks; memory they share counts in each.
    """

    cpu_s: float
    children_cpu_s: float
    peak_mib: float


class Arm(Protocol):
    """One engine with one model file in one configuration; `version` is known once it was started."""

    name: str
    version: str
    is_ours: bool
    over_http: bool

    def start(self, workload: Workload) -> None:
        """Bring it up for a workload; raises ArmError when it doesn't come up."""
        ...

    def run(self, shape: LoopShape, prompts: Iterable[list[int]], workload: Workload) -> tuple[LoadRun, CellUsage]: ...

    def stop(self) -> None: ...


class ArmError(Exception):
    """An engine didn't start or didn't answer; a comparison without it says so."""


class _Process:
    """A child process whose output goes to a log file, and the usage of its tree."""

    def __init__(self, command: Sequence[str], log: Path, **pipes: Any) -> None:
        self._log = log.open("wb")
        self.popen: subprocess.Popen[str] = subprocess.Popen(
            list(command), stderr=self._log, cwd=ROOT, text=True, **{"stdout": self._log, **pipes}
        )

    def begin_cell(self) -> list[tuple[int, float]]:
        pids = process_tree(self.popen.pid)
        for pid in pids:
            forget_peak(pid)
        return [(pid, usage(pid).cpu_s) for pid in pids]

    def end_cell(self, before: list[tuple[int, float]]) -> CellUsage:
        after = [usage(pid) for pid, _ in before]
        spent = [now.cpu_s - then for now, (_, then) in zip(after, before, strict=True)]
        return CellUsage(spent[0], sum(spent[1:]), sum(each.peak_mib for each in after))

    def stop(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._log.close()


class HttpArm(ABC):
    """A server with OpenAI's completions endpoint.

    Args:
        logs: directory for its output.
        ready_path: answers 200 when it can serve.

    Attributes:
        address: where it listens, once it was started.
    """

    over_http = True

    def __init__(self, name: str, logs: Path, *, ready_path: str, is_ours: bool = False) -> None:
        self.name = name
        self.version = ""
        self.is_ours = is_ours
        self.address = ""
        self._url = ""
        self._logs = logs
        self._ready_path = ready_path
        self._process: _Process | None = None

    @abstractmethod
    def command(self, workload: Workload, port: int) -> list[str]:
        """Return what starts it for a workload on a port."""

    @abstractmethod
    def ask_version(self) -> str:
        """Return what the program says it is; raises ArmError when it can't be run."""

    def extra_body(self, workload: Workload) -> dict[str, Any]:
        """Return what its requests need besides the usual fields."""
        return {}

    def start(self, workload: Workload) -> None:
        self.version = self.ask_version()
        port = _free_port()
        log = self._logs / f"{self.name.replace(' ', '_').replace(',', '')}_{workload.name}.log"
        self._process = _Process(self.command(workload, port), log)
        self.address = f"http://127.0.0.1:{port}"
        self._url = f"{self.address}/v1/completions"
        deadline = time.perf_counter() + START_S
        while not _answers(self.address + self._ready_path):
            if self._process.popen.poll() is not None or time.perf_counter() > deadline:
                self.stop()
                raise ArmError(f"{self.name} did not come up; see {log}")
            time.sleep(0.2)

    def client(self, workload: Workload) -> StreamClient:
        """Return a client that sends this workload's requests."""
        body = {
            "model": "bench", "max_tokens": workload.new_tokens, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True}, **self.extra_body(workload),
        }  # fmt: skip
        return StreamClient(self._url, body)

    def run(self, shape: LoopShape, prompts: Iterable[list[int]], workload: Workload) -> tuple[LoadRun, CellUsage]:
        assert self._process is not None, "not started"
        before = self._process.begin_cell()
        return self.run_loop(shape, prompts, workload), self._process.end_cell(before)

    def run_loop(self, shape: LoopShape, prompts: Iterable[list[int]], workload: Workload) -> LoadRun:
        """Run a loop without looking at what it used."""
        return asyncio.run(run_closed_loop(self.client(workload).run, prompts, shape))

    @property
    def pids(self) -> list[int]:
        """Its process, then that one's children."""
        assert self._process is not None, "not started"
        return process_tree(self._process.popen.pid)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


class PellucidArm(HttpArm):
    """Ours, as `pellucid serve` starts it."""

    def __init__(self, name: str, logs: Path, *, model: str, options: Sequence[str] = ()) -> None:
        super().__init__(name, logs, ready_path="/ready", is_ours=True)
        self._file = model
        self._options = options

    def command(self, workload: Workload, port: int) -> list[str]:
        serve = [sys.executable, "-m", "service.cli", "serve", "--model", self._file, "--port", str(port)]
        return [*serve, "--served-model-name", "bench", "--log-level", "warning", *self._options]

    def ask_version(self) -> str:
        return VERSION

    def start(self, workload: Workload) -> None:
        """Also learn what computes: without kernels that were built it is torch, several times as slow."""
        super().start(workload)
        # 404 where the instruments are off.
        with suppress(HTTPError), urlopen(f"{self.address}/stats", timeout=10) as response:
            self.version = f"{VERSION}, {json.load(response)['engine']['executor']} executor"


class LlamaCppArm(HttpArm):
    """llama.cpp's server with flash attention; its slots divide the context, so each workload gets its own."""

    def __init__(self, name: str, logs: Path, *, binary: str, model: str, threads: int) -> None:
        super().__init__(name, logs, ready_path="/health")
        self._binary, self._file, self._threads = binary, model, threads

    def command(self, workload: Workload, port: int) -> list[str]:
        slots = max(workload.concurrencies)
        context = slots * (workload.prompt_tokens + workload.new_tokens + 64)
        threads = str(self._threads)
        cache = [] if workload.prefix_cache else ["--no-cache-prompt"]
        return [
            self._binary, "-m", self._file, "--port", str(port), "-t", threads, "-tb", threads, "-np", str(slots),
            "-c", str(context), "-fa", "on", "--cache-ram", "0", *cache,
        ]  # fmt: skip

    def ask_version(self) -> str:
        return _first_line([self._binary, "--version"])

    def extra_body(self, workload: Workload) -> dict[str, Any]:
        return {"cache_prompt": workload.prefix_cache}


class VllmArm(HttpArm):
    """vLLM's CPU backend, which reads the Hugging Face directory."""

    def __init__(self, name: str, logs: Path, *, python: str, model: str, environment: Sequence[str]) -> None:
        super().__init__(name, logs, ready_path="/health")
        self._python, self._directory, self._environment = python, model, environment

    def command(self, workload: Workload, port: int) -> list[str]:
        cache = "--enable-prefix-caching" if workload.prefix_cache else "--no-enable-prefix-caching"
        return [
            "env", *self._environment, self._python, "-m", "vllm.entrypoints.openai.api_server", "--model",
            self._directory, "--served-model-name", "bench", "--port", str(port), "--dtype", "bfloat16",
            "--max-model-len", "2048", cache,
        ]  # fmt: skip

    def ask_version(self) -> str:
        return _first_line([self._python, "-c", "from importlib.metadata import version; print(version('vllm'))"])


class OpenVinoArm:
    """OpenVINO GenAI in its own process, without HTTP; see openvino_loop.py."""

    is_ours = False
    over_http = False

    def __init__(self, name: str, logs: Path, *, python: str, model: str, threads: int) -> None:
        self.name = name
        self.version = ""
        self._logs = logs
        self._python, self._file, self._threads = python, model, threads
        self._process: _Process | None = None

    def start(self, workload: Workload) -> None:
        log = self._logs / f"{self.name.replace(' ', '_').replace(',', '')}_{workload.name}.log"
        command = [self._python, str(ROOT / "scripts/serving/openvino_loop.py"), "--model", self._file]
        command += ["--threads", str(self._threads), *(["--prefix-cache"] if workload.prefix_cache else [])]
        self._process = _Process(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self._stream("stdout").readline()
        if not line:
            self.stop()
            raise ArmError(f"{self.name} did not come up; see {log}")
        self.version = json.loads(line)["version"]

    def run(self, shape: LoopShape, prompts: Iterable[list[int]], workload: Workload) -> tuple[LoadRun, CellUsage]:
        assert self._process is not None, "not started"
        before = self._process.begin_cell()
        job = {
            "prompts": list(prompts), "max_tokens": workload.new_tokens, "concurrency": shape.concurrency,
            "warm_up_s": shape.warm_up_s, "window_s": shape.window_s, "min_requests": shape.min_requests,
            "num_requests": shape.num_requests or sys.maxsize,
        }  # fmt: skip
        self._stream("stdin").write(json.dumps(job) + "\n")
        self._stream("stdin").flush()
        line = self._stream("stdout").readline()
        if not line:
            raise ArmError(f"{self.name} ended in a run; see its log in {self._logs}")
        answer = json.loads(line)
        used = self._process.end_cell(before)
        records = [
            RequestRecord(**request, num_output_tokens=len(request["token_ids"])) for request in answer["requests"]
        ]
        if shape.num_requests:
            opened, closed = answer["started"], answer["stopped"]
        else:
            opened, closed = answer["opened"], answer["closed"]
        return LoadRun(records, opened, closed, 0.0), used

    def stop(self) -> None:
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._stream("stdin").close()
            self._process.stop()
            self._process = None

    def _stream(self, name: str) -> IO[str]:
        assert self._process is not None, "not started"
        stream: IO[str] = getattr(self._process.popen, name)
        return stream


def _first_line(command: Sequence[str]) -> str:
    """Return the first line that a program says of itself; raises ArmError when it can't be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ArmError(f"{command[0]} can't be run: {error}") from None
    return (done.stdout + done.stderr).strip().partition("\n")[0]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
