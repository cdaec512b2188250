"""Cores, not hardware threads; within the processors that the process may use."""

from pathlib import Path

import pytest

from engine.execution.physical_cores import count_physical_cores


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Two cores of two hardware threads each: 0 with 2, 1 with 3."""
    for number, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        directory = tmp_path / f"cpu{number}" / "topology"
        directory.mkdir(parents=True)
        (directory / "thread_siblings_list").write_text(siblings + "\n")
    return tmp_path


@pytest.mark.parametrize(("usable", "cores"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({1}, 1), ({0, 3}, 2), (set(), 1)])
def test_hardware_threads_of_a_core_count_once(topology: Path, usable: set[int], cores: int) -> None:
    assert count_physical_cores(usable, topology) == cores


def test_unknown_topology_counts_processors(tmp_path: Path) -> None:
    assert count_physical_cores({0, 1, 5}, tmp_path) == 3
    assert count_physical_cores() >= 1
