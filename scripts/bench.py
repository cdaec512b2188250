#!/usr/bin/env python3
"""Measure this server: what batching gives (the default), its speed beside that of its peers (`--peers`), what its
instruments cost (`--overhead`), or what its service's process costs (`--service`).

    .venv/bin/python scripts/bench.py [--json FILE]
    .venv/bin/python scripts/bench.py --peers --llama-server PATH --openvino-python PATH [--json FILE]
    .venv/bin/python scripts/bench.py --overhead [--json FILE]
    .venv/bin/python scripts/bench.py --service [--json FILE]

Each has its own options: `--help`, `--peers --help`, `--overhead --help`, `--service --help`. Outputs are
checked before a figure is printed.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def main() -> int:
    if "--peers" in sys.argv[1:]:
        from scripts.serving.command import main as compare_with_peers

        return compare_with_peers([word for word in sys.argv[1:] if word != "--peers"])
    if "--overhead" in sys.argv[1:]:
        from scripts.serving.overhead import main as measure_overhead

        return measure_overhead([word for word in sys.argv[1:] if word != "--overhead"])
    if "--service" in sys.argv[1:]:
        from scripts.serving.service_cost import main as measure_service

        return measure_service([word for word in sys.argv[1:] if word != "--service"])
    from scripts.batching import main as measure_batching

    return measure_batching()


if __name__ == "__main__":
    sys.exit(main())
