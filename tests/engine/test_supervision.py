"""Limits of the watch, restart budget, silence."""

import msgspec
import pytest

from engine.clock import ManualClock
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.supervision import RestartBudget, Silence, SupervisionConfig, longest_honest_step_s
from tests.support.fake_core import fake_info


def test_budget_restarts_in_one_window_pause_longer_each_time_then_none() -> None:
    config = SupervisionConfig(max_restarts=5, first_delay_s=0.5, max_delay_s=3.0)
    budget = RestartBudget(config, clock=ManualClock())
    assert [budget.next_delay_s() for _ in range(6)] == [0.5, 1.0, 2.0, 3.0, 3.0, None]


def test_budget_restarts_older_than_the_window_count_no_more() -> None:
    clock = ManualClock()
    budget = RestartBudget(SupervisionConfig(max_restarts=2, restart_window_s=100.0), clock=clock)
    assert [budget.next_delay_s(), budget.next_delay_s(), budget.next_delay_s()] == [0.5, 1.0, None]
    clock.advance(100.1)
    assert budget.next_delay_s() == 0.5


def test_budget_of_no_restarts_never_gives_one() -> None:
    assert RestartBudget(SupervisionConfig(max_restarts=0), clock=ManualClock()).next_delay_s() is None


def test_silence_one_overdue_look_is_not_enough_two_in_a_row_are() -> None:
    silence = Silence()
    looks = [True, False, True, True]
    assert [silence.is_too_long(is_overdue=look) for look in looks] == [False, False, False, True]


@pytest.mark.parametrize("field", ["hang_timeout_s", "load_timeout_s", "check_s", "shutdown_s", "reap_s"])
def test_config_time_limit_of_zero_is_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{field}` must be greater than 0, got 0"):
        SupervisionConfig(**{field: 0.0})


def test_config_negative_restarts_are_refused() -> None:
    with pytest.raises(ConfigError, match="`max_restarts` must be at least 0, got -1"):
        SupervisionConfig(max_restarts=-1)


def test_longest_honest_step_grows_with_model_and_budget_on_cpus_only() -> None:
    info = msgspec.structs.replace(
        fake_info(EngineConfig(model="m")), num_parameters=7_000_000_000, max_num_batched_tokens=512, device="cpu"
    )
    assert longest_honest_step_s(info) == pytest.approx(1433.6)
    assert longest_honest_step_s(msgspec.structs.replace(info, device="cuda:0")) == 0.0
