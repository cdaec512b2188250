"""Prefix reuse against its theoretical minimum: no token is computed that was computed and is still there."""

import pytest

from engine.events import RequestChunk, RequestScheduled, StepFinished
from engine.sampling_params import SamplingParams
from tests.support.liveness import run_watched
from tests.support.plain_model import distinct_tokens, solo_output
from tests.support.scripted_engine import ScriptedEngine

NUM_REQUESTS = 32
NUM_SHARED = 512
NUM_OWN = 20
BLOCK_SIZE = 16


def prompts() -> list[list[int]]:
    """Return 32 prompts: 512 tokens of system prompt, then 20 of their own that differ from the first on."""
    shared = distinct_tokens(NUM_SHARED, salt=900)
    return [shared + distinct_tokens(NUM_OWN, salt=number) for number in range(NUM_REQUESTS)]


def num_computed_prompt_tokens(engine: ScriptedEngine) -> int:
    return sum(event.num_tokens for event in engine.events if isinstance(event, RequestChunk))


def new_engine(*, budget: int) -> ScriptedEngine:
    return ScriptedEngine(
        num_blocks=400, block_size=BLOCK_SIZE, max_num_seqs=NUM_REQUESTS, max_num_batched_tokens=budget
    )


def check_outputs(engine: ScriptedEngine, names: list[str], params: SamplingParams) -> None:
    for name, prompt in zip(names, prompts(), strict=True):
        assert engine.outputs[name, 0] == solo_output(prompt, params)[0]
    engine.check_at_rest()


MINIMUM = NUM_SHARED + NUM_REQUESTS * NUM_OWN
"""Every distinct token position once: the system prompt by whoever comes first, and each request's own part."""


def test_32_requests_sharing_512_tokens_one_after_another_compute_the_minimum_exactly() -> None:
    engine = new_engine(budget=512)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    names = []
    for prompt in prompts():
        names.append(engine.add(prompt, params=params))
        engine.run(max_steps=8)
    assert num_computed_prompt_tokens(engine) == MINIMUM
    scheduled = [event.num_cached_tokens for event in engine.events if isinstance(event, RequestScheduled)]
    assert scheduled == [0] + [NUM_SHARED] * (NUM_REQUESTS - 1)
    check_outputs(engine, names, params)


def test_32_requests_sharing_512_tokens_while_the_first_still_runs_compute_the_minimum_exactly() -> None:
    """Siblings in flight share: the first one publishes as it goes, not when it ends."""
    engine = new_engine(budget=512)
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    names = [engine.add(prompts()[0], params=params)]
    engine.step()
    names += [engine.add(prompt, params=params) for prompt in prompts()[1:]]
    engine.run(max_steps=80)
    assert num_computed_prompt_tokens(engine) == MINIMUM
    check_outputs(engine, names, params)


@pytest.mark.parametrize("budget", [64, 100, 512, 640, 1064, 2048, 20_000])
def test_32_requests_sharing_512_tokens_all_at_once_compute_the_minimum_exactly(budget: int) -> None:
    """Whoever wants a block that an older one is about to write waits for it, whatever else the budget would allow."""
    engine = new_engine(budget=budget)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    names = [engine.add(prompt, params=params) for prompt in prompts()]
    run_watched(engine, max_steps=200)
    assert num_computed_prompt_tokens(engine) == MINIMUM
    check_outputs(engine, names, params)


def test_32_requests_all_at_once_with_room_for_all_wait_one_step_only() -> None:
    engine = new_engine(budget=20_000)
    for prompt in prompts():
        engine.add(prompt, max_tokens=1)
    engine.run(max_steps=2)
    steps = [event.num_prefill_tokens for event in engine.events if isinstance(event, StepFinished)]
    assert steps == [NUM_SHARED + NUM_OWN, (NUM_REQUESTS - 1) * NUM_OWN]
    assert not engine.core.has_work


def test_waiting_for_a_sibling_that_is_aborted_goes_on_without_it() -> None:
    engine = new_engine(budget=64)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    names = [engine.add(prompt, params=params) for prompt in prompts()[:3]]
    for _ in range(3):
        engine.step()
    engine.abort(names[0])
    run_watched(engine, max_steps=40)
    assert num_computed_prompt_tokens(engine) == NUM_SHARED + 2 * NUM_OWN
    for name, prompt in zip(names[1:], prompts()[1:3], strict=True):
        assert engine.outputs[name, 0] == solo_output(prompt, params)[0]
    engine.check_at_rest()


def test_prompt_parting_inside_a_block_copies_it_and_computes_only_what_differs() -> None:
    engine = new_engine(budget=64)
    shared = distinct_tokens(21, salt=900)
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    engine.add(shared + distinct_tokens(20, salt=1), params=params)
    engine.run(max_steps=3)
    engine.add(shared + distinct_tokens(20, salt=2), params=params)
    engine.run(max_steps=3)
    assert num_computed_prompt_tokens(engine) == 41 + 20
    engine.check_at_rest()


def test_next_turn_of_a_chat_reuses_the_prompt_and_the_generated_tokens() -> None:
    """All but the answer's last token, whose KV was never written, and what comes after it."""
    engine = new_engine(budget=64)
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    first = distinct_tokens(40, salt=1)
    name = engine.add(first, params=params)
    engine.run(max_steps=40)
    second = first + engine.outputs[name, 0] + distinct_tokens(9, salt=2)
    before = num_computed_prompt_tokens(engine)
    engine.add(second, params=params)
    engine.run(max_steps=40)
    num_written = 40 + 30 - 1
    num_full = num_written // BLOCK_SIZE * BLOCK_SIZE
    assert num_computed_prompt_tokens(engine) - before == len(second) - num_full
    engine.check_at_rest()


def test_reused_tokens_are_counted_in_the_step_that_saves_them() -> None:
    engine = new_engine(budget=512)
    for prompt in prompts()[:2]:
        engine.add(prompt, max_tokens=1)
        engine.run(max_steps=4)
    steps = [event.num_prefill_tokens for event in engine.events if isinstance(event, StepFinished)]
    assert steps == [512, 20, 20]
