"""What run_stack.py can refuse before anything is installed. Standard library only."""

import argparse
import os
import shutil

from bootstrap import fail
from children import EXIT_USAGE, port_is_free

HOST = "127.0.0.1"


def check_ports(args: argparse.Namespace) -> None:
    """Refuse a busy port in one line, before anything is installed or started."""
    wanted = [("--port", args.port)]
    if not args.no_dashboard:
        wanted.append(("--dashboard-port", args.dashboard_port))
    if not args.no_prometheus and shutil.which("prometheus"):
        wanted.append(("--prometheus-port", args.prometheus_port))
    for flag, port in wanted:
        if not 1 <= port <= 65535:
            fail(f"{flag} must lie in 1..65535, got {port}", 2)
        if not port_is_free(HOST, port):
            fail(f"port {port} is in use; stop what listens there or choose another with {flag}", 1)
    numbers = [port for _, port in wanted]
    if len(set(numbers)) != len(numbers):
        fail(f"the ports must differ, got {', '.join(f'{flag} {port}' for flag, port in wanted)}", 2)


def check_model(name: str) -> None:
    """Refuse a missing file in one line, before anything is installed."""
    if name.endswith(".gguf") and not os.path.exists(name):
        fail(f"{name}: no such file", EXIT_USAGE)


def key_file(engine_flags: list[str]) -> str:
    """Return what the flags for `pellucid serve` name as its key file; "" without one."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--api-key-file", default="")
    return str(parser.parse_known_args(engine_flags)[0].api_key_file)
