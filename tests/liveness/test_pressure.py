"""Small pools: whatever the shortage, everything accepted ends, within a stated number of steps, and nothing leaks.

The bound. Served one after another, a request takes ceil(prompt / budget) steps to its first token and one for each
further token. However they are mixed, chunked, preempted and resumed, together they may not take more steps than one
after another (`num_steps_one_by_one`); and in every single step the oldest running sequence advances (`run_watched`).
"""

import pytest

from engine.events import RequestPreempted, StepFinished
from engine.sampling_params import SamplingParams
from tests.support.liveness import fill_cache, num_steps_one_by_one, run_watched
from tests.support.plain_model import distinct_tokens, solo_output
from tests.support.scripted_engine import ScriptedEngine


def serve(engine: ScriptedEngine, requests: list[tuple[int, int]]) -> int:
    """Serve (prompt tokens, output tokens) requests at once and return the steps; all as the theory says."""
    wanted = {}
    for number, (num_prompt, num_outputs) in enumerate(requests):
        prompt = distinct_tokens(num_prompt, salt=number)
        params = SamplingParams(max_tokens=num_outputs, ignore_eos=True)
        wanted[engine.add(prompt, params=params), 0] = solo_output(prompt, params)
    most = num_steps_one_by_one(requests, budget=engine.config.max_num_batched_tokens)
    num_steps = run_watched(engine, max_steps=most)
    for choice, (tokens, finish_reason) in wanted.items():
        assert engine.outputs[choice] == tokens
        assert engine.ends[choice] == finish_reason
    report = engine.check_at_rest()
    assert report.num_futile_resumes == 0, report.to_text()
    return num_steps


@pytest.mark.parametrize("num_cached", [24, 19, 23])
def test_hundred_token_prompt_in_24_block_pool_full_of_cache_takes_as_long_as_in_an_empty_one(num_cached: int) -> None:
    engine = ScriptedEngine(num_blocks=24, block_size=8, max_num_batched_tokens=32)
    fill_cache(engine, num_blocks=num_cached)
    assert serve(engine, [(100, 8)]) == 4 + 7


def test_hundred_token_prompts_in_24_block_pool_full_of_cache_all_finish() -> None:
    engine = ScriptedEngine(num_blocks=24, block_size=8, max_num_batched_tokens=32)
    fill_cache(engine, num_blocks=24)
    serve(engine, [(100, 8)] * 5)


def test_several_half_prefilled_requests_that_exhaust_the_pool_all_finish() -> None:
    """Decodes grow while long prompts advance by a few tokens a step: the pool runs out with prompts half computed."""
    engine = ScriptedEngine(num_blocks=24, block_size=8, max_num_seqs=6, max_num_batched_tokens=8)
    serve(engine, [(8, 60), (8, 60), (50, 10), (50, 10), (50, 10), (50, 10)])
    half_prefilled = [
        event for event in engine.events if isinstance(event, RequestPreempted) and 0 < event.num_lost_tokens < 50
    ]
    assert half_prefilled, "the pool never ran out in the middle of a prefill"


def test_pool_for_one_and_a_half_requests_with_two_growing_ones_both_finish() -> None:
    engine = ScriptedEngine(num_blocks=12, block_size=8, max_num_batched_tokens=32)
    serve(engine, [(16, 48), (16, 48)])
    assert engine.kinds(RequestPreempted)


def test_pool_for_one_and_a_half_requests_with_six_growing_ones_all_finish() -> None:
    engine = ScriptedEngine(num_blocks=12, block_size=8, max_num_batched_tokens=32)
    serve(engine, [(16, 48)] * 6)


def test_pool_that_exactly_holds_one_request_serves_many() -> None:
    engine = ScriptedEngine(num_blocks=8, block_size=8, max_num_batched_tokens=16)
    serve(engine, [(40, 24)] * 6)


def test_forks_that_outgrow_the_pool_together_all_finish() -> None:
    engine = ScriptedEngine(num_blocks=10, block_size=8, max_num_seqs=4, max_num_batched_tokens=32)
    prompt = distinct_tokens(30, salt=1)
    params = SamplingParams(max_tokens=40, n=4, ignore_eos=True)
    engine.add(prompt, params=params, request_id="a")
    run_watched(engine, max_steps=4 * num_steps_one_by_one([(30, 40)], budget=32))
    for index in range(4):
        assert engine.outputs["a", index] == solo_output(prompt, params, index=index)[0]
    assert engine.check_at_rest().num_futile_resumes == 0
    assert engine.kinds(RequestPreempted)


def test_1500_shared_prefix_requests_through_a_small_pool_all_finish() -> None:
    engine = ScriptedEngine(num_blocks=32, block_size=8, max_num_seqs=16, max_num_batched_tokens=64)
    shared = distinct_tokens(64, salt=500)
    wanted = {}
    sizes = []
    for number in range(1500):
        prompt = shared + distinct_tokens(1 + number % 17, salt=number % 400)
        params = SamplingParams(max_tokens=1 + number % 9, ignore_eos=True)
        sizes.append((len(prompt), params.max_tokens))
        wanted[engine.add(prompt, params=params), 0] = solo_output(prompt, params)[0]
    num_steps = run_watched(engine, max_steps=num_steps_one_by_one(sizes, budget=64))
    assert engine.outputs == wanted
    report = engine.check_at_rest()
    assert report.num_futile_resumes == 0, report.to_text()
    num_tokens = sum(len(tokens) for tokens in wanted.values())
    assert num_steps / num_tokens <= 0.5, "two tokens a step at least: several requests run at a time"


def test_long_run_under_pressure_never_wastes_more_than_it_generates() -> None:
    """Recomputed tokens stay below generated ones in a pool for one and a half of eight growing requests."""
    engine = ScriptedEngine(num_blocks=15, block_size=8, max_num_batched_tokens=32)
    serve(engine, [(20, 60)] * 8)
    steps = [event for event in engine.events if isinstance(event, StepFinished)]
    num_recomputed = sum(event.num_recomputed_tokens for event in steps)
    assert num_recomputed <= sum(event.num_generated_tokens for event in steps)


# --- what can never fit ------------------------------------------------------------------------------------------


def test_prompt_larger_than_the_pool_is_refused_at_once_with_both_numbers_and_the_next_is_served() -> None:
    engine = ScriptedEngine(num_blocks=63, block_size=16, max_model_len=2048, max_num_batched_tokens=256)
    engine.add(distinct_tokens(1500, salt=1), request_id="big", max_tokens=8)
    assert engine.ends["big", 0] == "error"
    assert "1501" in engine.errors["big"] or "1508" in engine.errors["big"]
    assert "1008" in engine.errors["big"]
    engine.add(distinct_tokens(10, salt=2), request_id="small", max_tokens=4, ignore_eos=True)
    assert engine.run(max_steps=4) == 4
    assert engine.ends["small", 0] == "length"
    engine.check_at_rest()


def test_prompt_and_output_larger_than_the_pool_is_refused_under_reject() -> None:
    engine = ScriptedEngine(num_blocks=40, block_size=16, max_num_batched_tokens=256, overflow="reject")
    engine.add(distinct_tokens(630, salt=1), request_id="a", max_tokens=20, ignore_eos=True)
    assert engine.ends["a", 0] == "error"
    assert "650" in engine.errors["a"]
    assert "640" in engine.errors["a"]
    engine.check_at_rest()


def test_prompt_and_output_larger_than_the_pool_ends_with_length_under_truncate() -> None:
    engine = ScriptedEngine(num_blocks=40, block_size=16, max_num_batched_tokens=256, overflow="truncate")
    engine.add(distinct_tokens(630, salt=1), request_id="a", max_tokens=20, ignore_eos=True)
    run_watched(engine, max_steps=num_steps_one_by_one([(630, 10)], budget=256))
    assert len(engine.outputs["a", 0]) == 10
    assert engine.ends["a", 0] == "length"
    engine.check_at_rest()


def test_two_requests_of_330_tokens_that_both_grow_in_640_advance_in_every_step() -> None:
    engine = ScriptedEngine(num_blocks=40, block_size=16, max_num_batched_tokens=256)
    serve(engine, [(330, 100), (330, 100)])
