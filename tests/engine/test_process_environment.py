import os

import pytest

from engine.process_environment import THREAD_VARIABLES, set_compute_threads, wait_without_spinning


def test_wait_without_spinning_where_nothing_is_set_puts_idle_threads_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    wait_without_spinning()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


def test_wait_without_spinning_leaves_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    wait_without_spinning()
    assert os.environ["OMP_WAIT_POLICY"] == "active"


@pytest.mark.parametrize(("num_threads", "expected"), [(3, "3"), (0, "7")])
def test_set_compute_threads_sets_every_library_and_zero_leaves_them(
    monkeypatch: pytest.MonkeyPatch, num_threads: int, expected: str
) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "7")
    set_compute_threads(num_threads)
    assert {name: os.environ[name] for name in THREAD_VARIABLES} == dict.fromkeys(THREAD_VARIABLES, expected)
