#!/usr/bin/env python3
"""Prove the whole project with one command; bootstraps `.venv` by itself.

Runs stages in order, prints a table with the time of each, and ends with the line `N passed, N failed, N skipped`:
every test of the test suite counts, and every other stage counts as one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bootstrap import ROOT, reexec_inside
from build_kernels import build_kernels

TOOLS = {
    "chromium": ("chromium", "the dashboard's browser tests"),
    "chromedriver": ("chromedriver", "the dashboard's browser tests"),
    "node": ("node", "tests of the dashboard's modules, and the JavaScript client"),
    "npm": ("npm", "the type check of the k6 script"),
    "curl": ("curl", "the README's own command line"),
    "gcc": ("gcc", "the C client"),
    "make": ("make", "the C client"),
    "javac": ("javac", "the Java client"),
    "mcs": ("mcs", "the C# client"),
    "mono": ("mono", "the C# client"),
    "prometheus": ("prometheus", "the stack scraped for real"),
    "promtool": ("promtool", "the tests of rules and alerts"),
}


@dataclass
class StageResult:
    """What one stage came to."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Options:
    """The command line, checked."""

    fast: bool
    strict: bool
    json_file: str | None
    only: list[str]


def run_command(result: StageResult, what: str, command: list[str], *, env: dict[str, str] | None = None) -> bool:
    """Run one check whose exit code decides; its output is shown when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        result.passed += 1
        return True
    result.failed += 1
    result.notes.append(f"{what}: exit code {done.returncode}")
    print(done.stdout[-6000:] + done.stderr[-6000:], flush=True)
    return False


def stage_environment(result: StageResult, options: Options) -> None:
    """Python, packages that fit together, and the tools that later stages want."""
    run_command(result, "pip check", [sys.executable, "-m", "pip", "check"])
    for name, (binary, why) in TOOLS.items():
        if shutil.which(binary):
            result.passed += 1
        elif options.strict:
            result.failed += 1
            result.notes.append(f"{name} is missing; it is needed for {why}")
        else:
            result.skipped += 1
            result.notes.append(f"{name} is missing: {why} will be skipped")


def stage_lint(result: StageResult, options: Options) -> None:
    """Ruff: rules and formatting."""
    run_command(result, "ruff check", [sys.executable, "-m", "ruff", "check", "."])
    run_command(result, "ruff format", [sys.executable, "-m", "ruff", "format", "--check", "."])


def stage_types(result: StageResult, options: Options) -> None:
    """mypy, strict, over every package."""
    run_command(result, "mypy", [sys.executable, "-m", "mypy"])


def stage_imports(result: StageResult, options: Options) -> None:
    """Who may import whom."""
    lint_imports = Path(sys.executable).with_name("lint-imports")
    run_command(result, "import contracts", [str(lint_imports)])


def stage_kernels(result: StageResult, options: Options) -> None:
    """The native CPU kernels are built, and the bindings that the laboratory compares."""
    build = build_kernels()
    if build.state == "ready":
        result.passed += 1
    elif build.state == "failed" or options.strict:
        result.failed += 1
    else:
        result.skipped += 1
    result.notes.append(build.message)
    if build.state == "ready":
        build_bindings(result, options)


def build_bindings(result: StageResult, options: Options) -> None:
    """Compile the laboratory's modules now and side by side, so that no two workers of the tests compile them."""
    from engine.errors import ConfigError
    from engine.kernels.binding_build import BINDINGS, build_binding

    def say(text: str) -> None:
        print(f"[kernels] {text}", flush=True)

    try:
        with ThreadPoolExecutor(len(BINDINGS)) as pool:
            list(pool.map(lambda name: build_binding(name, say), BINDINGS))
    except ConfigError as error:
        result.failed += options.strict
        result.skipped += not options.strict
        result.notes.append(str(error))
    else:
        result.passed += 1


def stage_node_packages(result: StageResult, options: Options) -> None:
    """The packages that tests of JavaScript need, as locked in tests/node."""
    if shutil.which("npm"):
        run_command(result, "npm ci", ["npm", "ci", "--prefix", "tests/node", "--no-audit", "--no-fund"])
    elif options.strict:
        result.failed += 1
        result.notes.append("npm is missing")
    else:
        result.skipped += 1
        result.notes.append("npm is missing: the k6 script's type check will be skipped")


def stage_tables(result: StageResult, options: Options) -> None:
    """Every table of the documentation re-derived from its record."""
    run_command(result, "reproduce", [sys.executable, "scripts/reproduce.py"])


def stage_model(result: StageResult, options: Options) -> None:
    """The default model is in the cache, whole."""
    run_command(result, "models pull", [sys.executable, "-m", "service.cli", "models", "pull", "--json"])


@dataclass(frozen=True)
class SuiteRun:
    """One of the runs of pytest that make up the test suite."""

    name: str
    expression: str
    flags: tuple[str, ...] = ()


# Workers take neighbouring tests, so that a file's server is started once; who is done first takes over half of what is
# left to the other one. What measures time, processor share or memory runs afterwards, alone.
NUM_WORKERS = 2
SUITE_RUNS = (
    SuiteRun("beside", "not alone", ("-n", str(NUM_WORKERS), "--dist", "worksteal")),
    SuiteRun("alone", "alone"),
)


def add_report(result: StageResult, name: str, report: Path, code: int) -> None:
    """Add what one run of pytest reported; a run that reports nothing, or that nothing explains, is a failure."""
    if not report.exists():
        result.failed += 1
        result.notes.append(f"pytest ({name}) wrote no report (exit code {code})")
        return
    passed = failed = skipped = 0
    for suite in ET.parse(report).getroot().iter("testsuite"):
        counts = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
        bad = counts["failures"] + counts["errors"]
        failed += bad
        skipped += counts["skipped"]
        passed += counts["tests"] - bad - counts["skipped"]
    if code and not failed:
        failed += 1
        result.notes.append(f"pytest ({name}) ended with exit code {code} although no test failed")
    if passed == 0:
        failed += 1
        result.notes.append(f"pytest ({name}) ran no test")
    result.passed += passed
    result.failed += failed
    result.skipped += skipped


def stage_tests(result: StageResult, options: Options) -> None:
    """Unit, property, equivalence, liveness, API, client and browser tests."""
    env = {**os.environ, "PELLUCID_STRICT_TOOLS": "1" if options.strict else "0"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # each of the servers that tests start would compile all modules anew
    for run in SUITE_RUNS:
        report = ROOT / "artifacts" / f"pytest-{run.name}.xml"
        report.parent.mkdir(exist_ok=True)
        report.unlink(missing_ok=True)
        expression = f"({run.expression}) and not slow" if options.fast else run.expression
        command = [sys.executable, "-m", "pytest", "-q", *run.flags, "-m", expression, f"--junitxml={report}"]
        started = time.monotonic()
        code = subprocess.run([*command, "--durations=15"], cwd=ROOT, env=env, check=False).returncode
        result.notes.append(f"{run.name}: {time.monotonic() - started:.0f} s")
        add_report(result, run.name, report, code)


def stage_stack(result: StageResult, options: Options) -> None:
    """The real stack: `run_stack.py --smoke`, every answer counted."""
    command = [sys.executable, "scripts/run_stack.py", "--smoke", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        smoke = json.loads(done.stdout)
    except json.JSONDecodeError:
        result.failed += 1
        result.notes.append(f"the stack did not come up (exit code {done.returncode}): {done.stderr.strip()[-500:]}")
        return
    for check in smoke["checks"]:
        if check["ok"]:
            result.passed += 1
        else:
            result.failed += 1
            result.notes.append(f"{check['name']}: {check['seen']}")
    result.notes.append(f"{smoke['seconds']} s from the command to the last answer")
    if done.returncode and not result.failed:
        result.failed += 1
        result.notes.append(f"run_stack.py --smoke ended with exit code {done.returncode}")


STAGES: dict[str, Callable[[StageResult, Options], None]] = {
    "environment": stage_environment,
    "lint": stage_lint,
    "types": stage_types,
    "imports": stage_imports,
    "tables": stage_tables,
    "node": stage_node_packages,
    "kernels": stage_kernels,
    "model": stage_model,
    "tests": stage_tests,
    "stack": stage_stack,
}


def parse_arguments() -> Options:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=f"Stages: {', '.join(STAGES)}.")
    parser.add_argument("--fast", action="store_true", help="leave out slow tests and the live stack")
    parser.add_argument("--strict", action="store_true", help="a missing tool is a failure (CI)")
    parser.add_argument("--json", dest="json_file", metavar="FILE", help="write the results to FILE as JSON")
    parser.add_argument("--only", action="append", default=[], choices=list(STAGES), help="run this stage; repeatable")
    args = parser.parse_args()
    return Options(fast=args.fast, strict=args.strict, json_file=args.json_file, only=args.only)


def print_table(results: list[StageResult]) -> None:
    print(f"\n{'stage':<12} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>9}")
    for result in results:
        print(f"{result.name:<12} {result.passed:>7} {result.failed:>7} {result.skipped:>8} {result.seconds:>9.1f}")
        for note in result.notes:
            print(f"             {note}")
    print(f"{'':<12} {'':>7} {'':>7} {'':>8} {sum(result.seconds for result in results):>9.1f}\n")


def main() -> int:
    options = parse_arguments()
    reexec_inside(("dev",))
    os.chdir(ROOT)
    results: list[StageResult] = []
    for name, stage in STAGES.items():
        if (options.only and name not in options.only) or (options.fast and name == "stack" and not options.only):
            continue
        print(f"== {name}: {stage.__doc__}", flush=True)
        result = StageResult(name)
        started = time.monotonic()
        stage(result, options)
        result.seconds = time.monotonic() - started
        results.append(result)
    print_table(results)
    totals = {key: sum(getattr(result, key) for result in results) for key in ("passed", "failed", "skipped")}
    if options.json_file:
        record = {**totals, "stages": [asdict(result) for result in results]}
        Path(options.json_file).write_text(json.dumps(record, indent=2) + "\n")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
