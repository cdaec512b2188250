"""Engine time by stage: nothing is lost between steps, and idling is seen while it lasts."""

import pytest

from tests.support.event_script import Script

STAGE = 'pellucid_engine_stage_seconds_total{{stage="{}"}}'


@pytest.fixture
def script() -> Script:
    script = Script()
    script.engine_started()
    return script


def stage(script: Script, name: str) -> float:
    return script.scrape()[STAGE.format(name)]


def test_time_between_steps_with_work_is_messages_and_without_is_idle(script: Script) -> None:
    script.arrive("a")
    script.schedule("a")
    script.run_step(0.1)
    script.at(script.t + 0.02)
    script.run_step(0.1, num_running=0)
    script.finish("a")
    script.at(script.t + 3.0)
    script.arrive("b")
    script.run_step(0.1)
    assert stage(script, "messages") == pytest.approx(0.02)
    assert stage(script, "idle") == pytest.approx(3.0)


def test_idle_time_is_counted_up_to_each_scrape_and_once(script: Script) -> None:
    script.arrive("a")
    script.run_step(0.1, num_running=0)
    script.abort("a")
    script.at(script.t + 1.0)
    assert stage(script, "idle") == pytest.approx(1.0)
    script.at(script.t + 1.0)
    assert stage(script, "idle") == pytest.approx(2.0)
    script.arrive("b")
    script.run_step(0.1)
    assert stage(script, "idle") == pytest.approx(2.0)


def test_stages_sum_to_the_wall_time_of_the_loop(script: Script) -> None:
    script.arrive("a")
    script.schedule("a")
    script.run_step(0.1)
    first = script.t - 0.1
    for gap in (0.01, 0.5, 0.0):
        script.at(script.t + gap)
        script.run_step(0.1)
    total = sum(
        value for name, value in script.scrape().items() if name.startswith("pellucid_engine_stage_seconds_total")
    )
    assert total == pytest.approx(script.t - first)
