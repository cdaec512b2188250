"""loadtest/scenario.py and the scenarios that come with it."""

from pathlib import Path

import pytest

from loadtest.arrivals import Replay
from loadtest.errors import PlanError
from loadtest.lengths import FromFile
from loadtest.planned_request import planned_requests
from loadtest.scenario import read_scenario
from loadtest.stages import label, stages_of

SCENARIOS = Path(__file__).resolve().parents[2] / "loadtest" / "scenarios"
SMALL = """
name = "small"
[target]
url = "http://127.0.0.1:1"
[load]
num_requests = 1
"""


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_committed_scenario_is_read_and_asks_for_requests(path: Path) -> None:
    scenario = read_scenario(path)
    assert scenario.name
    assert scenario.description
    assert next(planned_requests(scenario.load)).output_tokens >= 1
    assert label(scenario.load.arrivals)
    assert stages_of(scenario.load)


def test_scenarios_show_every_kind_of_arrival_but_the_plain_constant_rate() -> None:
    kinds = {type(read_scenario(path).load.arrivals).__name__ for path in SCENARIOS.glob("*.toml")}
    assert kinds == {"Poisson", "Gamma", "Ramp", "Sweep", "Closed", "Replay"}


def test_scenario_files_are_looked_for_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        SMALL + 'arrivals = { kind = "replay", file = "a/trace.jsonl" }\n'
        'prompt_tokens = { kind = "file", file = "p.txt" }\noutput_tokens = { kind = "file", file = "/abs/o.txt" }\n'
    )
    load = read_scenario(path).load
    assert isinstance(load.arrivals, Replay)
    assert load.arrivals.file == str(tmp_path / "a" / "trace.jsonl")
    assert load.prompt_tokens == FromFile(file=str(tmp_path / "p.txt"))
    assert load.output_tokens == FromFile(file="/abs/o.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read"),
        ("name = ", "can't be read"),
        (SMALL, "missing required field `arrivals`"),
        (SMALL + "arrivals = { kind = 'closed', concurrency = 1 }\nspeed = 3\n", "unknown field `speed`"),
        (SMALL + "arrivals = { kind = 'closed', concurrency = 1 }\nslos = { ttft = 3 }\n", "unknown field `ttft`"),
        (
            SMALL.replace("http:", "ftp:") + "arrivals = { kind = 'closed', concurrency = 1 }\n",
            r"\^https\?://.*target\.url",
        ),
        ("min_attainment = 90\n" + SMALL + "arrivals = { kind = 'closed', concurrency = 1 }\n", "min_attainment"),
    ],
)
def test_scenario_that_is_wrong_names_the_place(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match=message) as caught:
        read_scenario(path)
    assert "s.toml" in caught.value.message
