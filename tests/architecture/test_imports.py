"""Rules of architecture.md that an import linter can't say: clocks, environment, torch, empty packages."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "service", "observability", "dashboard", "loadtest")

NO_TORCH = (
    "engine.build",
    "engine.clock",
    "engine.config",
    "engine.core",
    "engine.client",
    "engine.errors",
    "engine.events",
    "engine.messages",
    "engine.sampling_params",
    "engine.schedule",
    "engine.scheduler",
    "engine.sequence",
    "engine.execution.executor",
    "engine.execution.forward_batch",
    "engine.execution.simulated_executor",
    "engine.kv.block_manager",
    "engine.kv.block_pool",
    "engine.kv.prefix_tree",
    "engine.text.chat_template",
    "engine.text.detokenizer",
    "engine.text.stop_strings",
    "engine.text.tokenizer",
    "observability.metrics",
    "observability.recorder",
    "observability.trace_check",
    "service.app",
    "dashboard.server",
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def importers_of(*names: str) -> list[str]:
    """Return the files that import one of the top-level packages."""
    return [path for path, tree in modules() if any(name.split(".")[0] in names for name in imported_names(tree))]


@pytest.mark.parametrize("module", NO_TORCH)
def test_module_imported_alone_brings_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"{module} imports torch"


def test_time_module_is_read_only_by_the_clock_and_the_load_generator() -> None:
    allowed = ("engine/clock.py", "loadtest/")
    assert [path for path in importers_of("time") if not path.startswith(allowed)] == []


def test_web_framework_is_imported_only_by_service_and_dashboard() -> None:
    allowed = ("service/", "dashboard/")
    found = importers_of("starlette", "uvicorn", "sse_starlette")
    assert [path for path in found if not path.startswith(allowed)] == []


def test_metric_and_trace_libraries_are_imported_only_by_observability() -> None:
    found = importers_of("prometheus_client", "opentelemetry")
    assert [path for path in found if not path.startswith("observability/")] == []


def test_environment_is_read_only_by_settings_modules() -> None:
    allowed = {
        "service/settings.py",
        "dashboard/settings.py",
        "engine/model/cache_dir.py",
        "engine/process_environment.py",
        "engine/kernels/toolchain.py",
    }
    found = set()
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                found.add(path)
    assert found - allowed == set()


def test_package_init_files_are_empty() -> None:
    filled = [path for path, tree in modules() if path.endswith("__init__.py") and tree.body]
    assert filled == []


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(n, ast.Name) and n.id in ("Exception", "BaseException") for n in ast.walk(handler.type))


def test_blind_except_swallows_only_in_outermost_loops() -> None:
    """Each place is named here, so that a new one is a decision; cleaning up and raising again swallows nothing."""
    allowed = {
        "engine/engine_loop.py",
        "engine/serving.py",
        "observability/backlog.py",  # stands in for the event loop, whose handler it tells
        "engine/text/huggingface_vocabulary.py",  # the tokenizers library raises bare Exception for a bad file
        "service/middleware/access.py",
        "service/routes/answer_frames.py",
        "service/token_stream.py",  # hands a failed write to the request's own task
    }
    found = {
        path
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
        if not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    }
    assert found == allowed
