"""loadtest/planned_request.py, lengths.py, replay.py and prompt_text.py: what a plan asks for, decided beforehand."""

import itertools
import statistics
from pathlib import Path
from typing import Any

import pytest

from loadtest.arrivals import Closed, Constant, Poisson, Replay
from loadtest.errors import PlanError
from loadtest.lengths import Fixed, FromFile, Lengths, Lognormal, Normal, Uniform, mean
from loadtest.plan import LoadPlan, SharedPrefix, make_plan
from loadtest.planned_request import PlannedRequest, planned_requests
from loadtest.prompt_text import PromptText
from loadtest.replay import BLOCK_TOKENS

TEXT = "".join(chr(33 + (place * place + place // 7) % 90) for place in range(20_000))


def lengths_of(lengths: Lengths, count: int = 4000) -> list[int]:
    plan = LoadPlan(arrivals=Closed(concurrency=1), prompt_tokens=lengths, num_requests=count)
    return [request.prompt_tokens for request in planned_requests(plan)]


def writer(**options: Any) -> PromptText:
    return PromptText(TEXT, **{"seed": 1, "shared": SharedPrefix(), "characters_per_token": 4.0, **options})


def test_lengths_have_the_distribution_asked_for() -> None:
    assert set(lengths_of(Fixed(tokens=7))) == {7}
    uniform = lengths_of(Uniform(min=3, max=6))
    assert sorted(set(uniform)) == [3, 4, 5, 6]
    assert statistics.mean(uniform) == pytest.approx(4.5, abs=0.1)
    normal = lengths_of(Normal(mean=100, std=10))
    assert (statistics.mean(normal), statistics.stdev(normal)) == (
        pytest.approx(100, abs=1),
        pytest.approx(10, abs=0.5),
    )
    skewed = lengths_of(Lognormal(mean=200, std=150))
    assert statistics.mean(skewed) == pytest.approx(200, rel=0.05)
    assert statistics.stdev(skewed) == pytest.approx(150, rel=0.12)
    assert statistics.median(skewed) < 170
    assert mean(Uniform(min=3, max=6)) == 4.5


def test_lengths_outside_the_bounds_become_the_bounds() -> None:
    found = lengths_of(Normal(mean=10, std=50, min=2, max=20))
    assert (min(found), max(found)) == (2, 20)


def test_lengths_from_a_file_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("5\n5\n80\n")
    found = lengths_of(FromFile(file=str(path)))
    assert set(found) == {5, 80}
    assert found.count(5) / len(found) == pytest.approx(2 / 3, abs=0.05)
    assert mean(FromFile(file=str(path))) == 30


@pytest.mark.parametrize("content", ["", "5\nx\n", "0\n", None])
def test_lengths_file_that_is_no_list_of_lengths_is_an_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "lengths.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match=r"lengths\.txt"):
        lengths_of(FromFile(file=str(path)))


def test_planned_requests_end_at_the_number_or_the_duration_whichever_is_first() -> None:
    by_number = LoadPlan(arrivals=Constant(rate=10), num_requests=4, duration_s=60)
    by_time = LoadPlan(arrivals=Constant(rate=10), num_requests=400, duration_s=0.35)
    assert [request.offset_s for request in planned_requests(by_number)] == [0.0, 0.1, 0.2, 0.3]
    assert [request.number for request in planned_requests(by_time)] == [0, 1, 2, 3]


def test_planned_requests_equal_plans_ask_for_equal_things_and_stages_differ() -> None:
    plan = LoadPlan(arrivals=Poisson(rate=10), num_requests=50, prompt_tokens=Uniform(min=1, max=999))
    assert list(planned_requests(plan)) == list(planned_requests(plan))
    assert list(planned_requests(plan)) != list(planned_requests(plan, stage=1))


def test_more_output_lengths_do_not_move_the_arrivals() -> None:
    one = LoadPlan(arrivals=Poisson(rate=10), num_requests=20)
    other = LoadPlan(arrivals=Poisson(rate=10), num_requests=20, output_tokens=Uniform(min=1, max=9))
    assert [r.offset_s for r in planned_requests(one)] == [r.offset_s for r in planned_requests(other)]


def test_replay_keeps_moments_lengths_and_what_is_shared(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [1, 3]}\n\n'
        '{"timestamp": 1000, "input_length": 700, "output_length": 9, "hash_ids": [1, 2], "more": true}\n'
        '{"timestamp": 3500, "input_length": 20, "output_length": 1}\n'
    )
    plan = LoadPlan(arrivals=Replay(file=str(path), time_scale=0.5))
    requests = list(planned_requests(plan))
    assert [(r.offset_s, r.prompt_tokens, r.output_tokens) for r in requests] == [
        (0.0, 700, 9),
        (1.0, 600, 5),
        (1.25, 20, 1),
    ]
    prompts = [writer().write(request) for request in requests]
    assert [len(prompt) for prompt in prompts] == [2800, 2400, 80]
    shared = BLOCK_TOKENS * 4
    assert prompts[0][:shared] == prompts[1][:shared]
    assert prompts[0][shared : shared + 40] != prompts[1][shared : shared + 40]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no requests"),
        ('{"timestamp": 1}\n', "line 1.*input_length"),
        ('{"timestamp": 1, "input_length": 5, "output_length": 5}\nnonsense\n', "line 2"),
        ('{"timestamp": -1, "input_length": 5, "output_length": 5}\n', "line 1.*timestamp"),
    ],
)
def test_replay_bad_trace_names_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    with pytest.raises(PlanError, match=message):
        planned_requests(LoadPlan(arrivals=Replay(file=str(path))))


def test_prompts_share_exactly_the_beginning_of_their_group() -> None:
    write = writer(shared=SharedPrefix(share=0.75, groups=2)).write
    prompts = [write(PlannedRequest(number, 0.0, 100, 1, prefix_group=number % 2)) for number in range(6)]
    assert {len(prompt) for prompt in prompts} == {400}
    assert len({prompt[:300] for prompt in prompts}) == 2
    assert prompts[0][:300] == prompts[2][:300]
    assert len({prompt[300:310] for prompt in prompts}) == 6


def test_prompts_without_sharing_differ_from_their_first_characters() -> None:
    prompts = [writer().write(PlannedRequest(number, 0.0, 10, 1)) for number in range(500)]
    assert len({prompt[:8] for prompt in prompts}) == 500


def test_prompt_longer_than_the_text_is_as_long_as_asked() -> None:
    assert len(writer().write(PlannedRequest(0, 0.0, 15_000, 1))) == 60_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"arrivals": {"kind": "closed", "concurrency": 2}}, "`duration_s` and `num_requests`"),
        ({"arrivals": {"kind": "flood"}, "duration_s": 1}, r"Invalid value 'flood' - at `\$\.arrivals\.kind`"),
        ({"arrivals": {"kind": "poisson", "rate": 0}, "duration_s": 1}, r"`float` > 0.*arrivals\.rate"),
        ({"arrivals": {"kind": "poisson", "rate": 1, "burst": 2}, "duration_s": 1}, "unknown field `burst`"),
        ({"arrivals": {"kind": "constant", "rate": 1}, "duration_s": 5, "warm_up_s": 5}, "`warm_up_s` must be less"),
        (
            {"arrivals": {"kind": "closed", "concurrency": 9}, "num_requests": 9, "max_connections": 8},
            "`max_connections` must be at least the concurrency 9",
        ),
        (
            {
                "arrivals": {"kind": "constant", "rate": 1},
                "duration_s": 5,
                "prompt_tokens": {"kind": "uniform", "min": 5, "max": 4},
            },
            "`min` must not be greater",
        ),
    ],
)
def test_plan_that_can_not_be_names_what_is_wrong(content: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(content)


def test_closed_loop_requests_have_no_moments_of_their_own() -> None:
    plan = LoadPlan(arrivals=Closed(concurrency=1), duration_s=1)
    assert [request.offset_s for request in itertools.islice(planned_requests(plan), 3)] == [0.0] * 3
