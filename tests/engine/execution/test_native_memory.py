"""Where the native executor's weights lie."""

from pathlib import Path

import pytest

from engine.execution.native_executor import NativeExecutor
from engine.model.catalog import DEFAULT_MODEL
from engine.model.load import load_model
from tests.support.native import native_library

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_page_bytes() -> int:
    """Return how much of this process's memory lies in huge pages."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no AnonHugePages in smaps_rollup")


@pytest.mark.model
@pytest.mark.skipif(
    not THP.exists() or "[never]" in THP.read_text(), reason="the system gives no transparent huge pages"
)
def test_weights_lie_in_huge_pages_though_each_matrix_is_smaller() -> None:
    model = load_model(DEFAULT_MODEL)
    before = huge_page_bytes()
    executor = NativeExecutor(
        model.spec, model.weights, library=native_library(), num_blocks=16, block_size=16, max_tokens=16,
        max_positions=256, threads=1, kv_dtype="float32",
    )  # fmt: skip
    held = huge_page_bytes() - before
    executor.close()
    num_bytes = (66 + 30) << 20  # 106 million weights in 4 bits with two float16 for every 32; the vocabulary in 8 bits
    assert held > 0.8 * num_bytes
