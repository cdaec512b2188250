#!/usr/bin/env python3
"""Start the whole stack with one command, from a machine that has only Python and pip.

Makes `.venv`, installs the project, fetches the model, starts the service, the dashboard and (if its binary is found)
Prometheus, waits until each is ready, prints the addresses, supervises, and stops in reverse order on Ctrl-C or
SIGTERM.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from pathlib import Path

from bootstrap import ROOT, end_on_signals, fail, reexec_inside
from build_kernels import build_kernels
from children import EXIT_USAGE, Child, StartError, free_ports
from preflight import HOST, check_model, check_ports, key_file
from prometheus_child import prometheus_child
from smoke import run_smoke

DEFAULT_MODEL = "smollm2-135m-instruct"
READY_TIMEOUT_S = 300.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Flags after a lone -- go to `pellucid serve` unchanged.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=8100, help="of the service")
    parser.add_argument("--dashboard-port", type=int, default=3100, help="of the dashboard")
    parser.add_argument("--prometheus-port", type=int, default=9190, help="of Prometheus")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="catalogue name, .gguf file, directory or random:PRESET")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME=URL",
        help="another server for the dashboard's Playground and Load tab",
    )
    parser.add_argument(
        "--target-key", action="append", metavar="NAME=VARIABLE", help="variable with a target's API key"
    )
    parser.add_argument("--no-dashboard", action="store_true", help="leave the dashboard out")
    parser.add_argument("--no-prometheus", action="store_true", help="leave Prometheus out")
    parser.add_argument("--open", action="store_true", help="open the dashboard in a browser")
    parser.add_argument("--smoke", action="store_true", help="free ports, one streamed chat, every page, then stop")
    parser.add_argument("--setup-only", action="store_true", help="install and fetch the model, start nothing")
    parser.add_argument("--json", action="store_true", help="print results as JSON on stdout, nothing else")
    parser.add_argument("engine_flags", nargs="*", metavar="-- ENGINE FLAGS", help="passed to `pellucid serve`")
    return parser.parse_args()


class Stack:
    """The children in starting order, and how they are watched."""

    def __init__(self, children: list[Child], *, quiet: bool) -> None:
        self.children = children
        self.quiet = quiet
        self.stopping = threading.Event()
        self.signal_number = 0

    def on_signal(self, number: int, _: object) -> None:
        """Stop, in order, as soon as what runs now allows it; the second time, end everything at once."""
        if self.stopping.is_set():
            for child in self.children:
                child.kill()
        self.signal_number = number
        self.stopping.set()

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    def start(self) -> None:
        """Start all, one after the other; raise StartError when a required one fails."""
        for child in list(self.children):
            child.start()
            try:
                child.wait_ready(READY_TIMEOUT_S, self.stopping)
            except StartError as error:
                if child.required or self.stopping.is_set():
                    raise
                self.say(f"[{child.name}] left out: {error}")
                child.stop()
                self.children.remove(child)
            else:
                self.say(f"[{child.name}] ready after {child.ready_after_s:.1f} s")

    def supervise(self) -> int:
        """Watch until told to stop; return the exit code."""
        while not self.stopping.wait(0.5):
            for child in self.children:
                code = child.poll()
                if code is None:
                    continue
                if child.required:
                    print(f"error: {child.name} ended with exit code {code}; its last lines:", file=sys.stderr)
                    print(child.last_lines(), file=sys.stderr)
                    return 1
                if child.num_restarts < child.max_restarts:
                    child.num_restarts += 1
                    self.say(f"[{child.name}] ended with exit code {code}; start {child.num_restarts} again")
                    child.start()
        return 0

    def stop(self) -> None:
        for child in reversed(self.children):
            if child.process is not None and child.poll() is None:
                patience = ", once running answers are done; Ctrl-C again ends them" if child.stop_grace_s > 30 else ""
                self.say(f"[{child.name}] stopping{patience}")
            child.stop()


def build_stack(args: argparse.Namespace, artifacts: Path) -> tuple[list[Child], dict[str, str]]:
    """Return the children to start and the addresses they will answer at."""
    python = sys.executable
    logs = artifacts / "logs"
    urls = {"service": f"http://{HOST}:{args.port}"}
    serve = [python, "-P", "-m", "service.cli", "serve", "--host", HOST, "--port", str(args.port)]
    serve += ["--model", args.model, "--device", args.device, *args.engine_flags]
    children = [Child("service", serve, f"{urls['service']}/ready", logs / "service.log", stop_grace_s=40.0)]
    if not args.no_dashboard:
        urls["dashboard"] = f"http://{HOST}:{args.dashboard_port}"
        command = [python, "-P", "-m", "dashboard.main", "--host", HOST, "--port", str(args.dashboard_port)]
        command += ["--service-url", urls["service"]]
        keys = key_file(args.engine_flags)
        command += ["--api-key-file", keys] if keys else []
        command += ["--state-dir", str(artifacts / "loads")]
        command += [f"--target={each}" for each in args.target or ()]
        command += [f"--target-key={each}" for each in args.target_key or ()]
        children.append(
            Child("dashboard", command, f"{urls['dashboard']}/healthz", logs / "dashboard.log", required=False)
        )
    binary = None if args.no_prometheus else shutil.which("prometheus")
    if binary:
        urls["prometheus"] = f"http://{HOST}:{args.prometheus_port}"
        children.append(
            prometheus_child(
                binary,
                listen_address=f"{HOST}:{args.prometheus_port}",
                service_address=f"{HOST}:{args.port}",
                key_path=key_file(args.engine_flags),
                artifacts=artifacts,
                logs=logs,
            )
        )
    return children, urls


def fetch_model(name: str, *, quiet: bool) -> None:
    """Make sure that a named model is in the cache; a path or `random:` needs nothing."""
    if name.startswith("random:") or os.path.exists(name) or name.endswith(".gguf") or "/" in name:
        return
    command = [sys.executable, "-P", "-m", "service.cli", "models", "pull", name]
    result = subprocess.run([*command, *(["--json"] if quiet else [])], stdout=subprocess.DEVNULL if quiet else None)
    if result.returncode:
        fail(f"the model {name!r} could not be fetched", result.returncode)


def prepare_kernels(*, quiet: bool) -> None:
    """Build the native kernels where that is possible; the stack runs without them."""
    build = build_kernels(quiet=quiet)
    if build.state == "failed":
        print(f"[kernels] the build failed, the torch executor serves:\n{build.message}", file=sys.stderr)
    elif not quiet:
        print(f"[kernels] {build.state}: {build.message}", flush=True)


def print_addresses(urls: dict[str, str], prometheus_missing: bool) -> None:
    print()
    for name, url in urls.items():
        print(f"  {name:<11} {url}")
    if prometheus_missing:
        print("  prometheus  not found on PATH (optional)")
    print("\nTry it:\n")
    print(f"  curl -N {urls['service']}/v1/chat/completions -H 'Content-Type: application/json' \\")
    print('    -d \'{"messages": [{"role": "user", "content": "Name the three primary colors."}], "temperature": 0,')
    print('         "stream": true}\'')
    print("\nCtrl-C stops everything.\n", flush=True)


def report_smoke(urls: dict[str, str], as_json: bool, started: float) -> int:
    results = run_smoke(
        service_url=urls["service"], dashboard_url=urls.get("dashboard"), prometheus_url=urls.get("prometheus")
    )
    failed = [result for result in results if not result.ok]
    seconds = time.monotonic() - started
    if as_json:
        checks = [{"name": r.name, "ok": r.ok, "seen": r.seen} for r in results]
        print(json.dumps({"ok": not failed, "seconds": round(seconds, 1), "urls": urls, "checks": checks}))
    else:
        for result in results:
            print(f"  {'ok  ' if result.ok else 'FAIL'} {result.name:<22} {result.seen}")
        print(f"smoke: {len(results) - len(failed)} of {len(results)} answered, {seconds:.1f} s from the start")
    return 1 if failed else 0


def main() -> int:
    started = time.monotonic()
    args = parse_arguments()
    end_on_signals()
    if not args.setup_only and not args.smoke:
        check_ports(args)
    check_model(args.model)
    reexec_inside(quiet=args.json)
    prepare_kernels(quiet=args.json)
    fetch_model(args.model, quiet=args.json)
    if args.setup_only:
        if args.json:
            print(json.dumps({"ok": True}))
        return 0
    if args.smoke:
        args.port, args.dashboard_port, args.prometheus_port = free_ports(HOST, 3)
    artifacts = ROOT / "artifacts" / (f"smoke-{os.getpid()}" if args.smoke else "stack")
    artifacts.mkdir(parents=True, exist_ok=True)
    children, urls = build_stack(args, artifacts)
    stack = Stack(children, quiet=args.json)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stack.on_signal)
    try:
        stack.start()
        urls = {name: url for name, url in urls.items() if name in {child.name for child in stack.children}}
        if args.smoke:
            return report_smoke(urls, args.json, started)
        if args.json:
            print(json.dumps({"ok": True, "urls": urls}), flush=True)
        else:
            print_addresses(urls, not args.no_prometheus and "prometheus" not in urls)
        if args.open and "dashboard" in urls:
            webbrowser.open(urls["dashboard"])
        return stack.supervise()
    except StartError as error:
        if stack.stopping.is_set():
            print("stopped", file=sys.stderr)
            return 128 + stack.signal_number
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE if error.exit_code == EXIT_USAGE else 1
    finally:
        stack.stop()
        if args.smoke:
            shutil.rmtree(artifacts, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
