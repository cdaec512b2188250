"""Who goes first: age within a priority, and nobody's decodes wait for anybody's prompt."""

import pytest

from engine.events import RequestChunk, RequestScheduled, RequestTokens, StepFinished
from engine.sampling_params import SamplingParams
from tests.support.liveness import run_watched
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import ScriptedEngine


def scheduled(engine: ScriptedEngine) -> list[str]:
    return [event.request_id for event in engine.events if isinstance(event, RequestScheduled)]


@pytest.mark.parametrize("num_blocks", [400, 14])
def test_requests_of_one_priority_are_admitted_by_age(num_blocks: int) -> None:
    engine = ScriptedEngine(num_blocks=num_blocks, block_size=8, max_num_seqs=3, max_num_batched_tokens=32)
    names = [
        engine.add(distinct_tokens(5 + number % 30, salt=number), max_tokens=1 + number % 20, ignore_eos=True)
        for number in range(40)
    ]
    run_watched(engine, max_steps=800)
    assert scheduled(engine) == names


def test_small_requests_do_not_overtake_a_large_one_that_waits_for_blocks() -> None:
    """The stated rule: the head of the queue waits for its room, and those behind it wait with it."""
    engine = ScriptedEngine(num_blocks=20, block_size=8, max_num_batched_tokens=64)
    engine.add(distinct_tokens(60, salt=1), request_id="running", max_tokens=30, ignore_eos=True)
    engine.step()
    engine.add(distinct_tokens(120, salt=2), request_id="large", max_tokens=2, ignore_eos=True)
    for number in range(5):
        engine.add(distinct_tokens(4, salt=10 + number), request_id=f"small{number}", max_tokens=2, ignore_eos=True)
    run_watched(engine, max_steps=60)
    assert scheduled(engine) == ["running", "large", *(f"small{number}" for number in range(5))]
    engine.check_at_rest()


def test_lower_number_is_admitted_first_and_age_decides_among_equals() -> None:
    engine = ScriptedEngine(num_blocks=400, block_size=8, max_num_seqs=1, max_num_batched_tokens=32)
    for name, priority in (("a1", 1), ("b0", 0), ("c-1", -1), ("d0", 0), ("e1", 1), ("f-1", -1)):
        engine.add(distinct_tokens(9, salt=ord(name[0])), request_id=name, priority=priority, max_tokens=2)
    run_watched(engine, max_steps=60)
    assert scheduled(engine) == ["c-1", "f-1", "b0", "d0", "a1", "e1"]


def test_preempted_older_request_comes_back_before_a_newer_one_is_admitted() -> None:
    engine = ScriptedEngine(num_blocks=12, block_size=8, max_num_seqs=4, max_num_batched_tokens=32)
    for name in ("a", "b", "c"):
        engine.add(distinct_tokens(16, salt=ord(name)), request_id=name, max_tokens=60, ignore_eos=True)
    run_watched(engine, max_steps=3 * 61)
    ends = [name for name, _ in engine.ends]
    assert ends == ["a", "b", "c"]
    assert engine.check_at_rest().num_preemptions > 0


def test_2000_token_prompt_never_stops_running_decodes() -> None:
    engine = ScriptedEngine(num_blocks=400, block_size=16, max_num_seqs=8, max_num_batched_tokens=64)
    params = SamplingParams(max_tokens=120, ignore_eos=True)
    running = [engine.add(distinct_tokens(6, salt=number), params=params) for number in range(4)]
    engine.step()
    long = engine.add(distinct_tokens(2000, salt=77), params=params)
    num_chunks = 0
    while (long, 0) not in engine.outputs:
        message = engine.step()
        got = [event.request_id for event in message.events if isinstance(event, RequestTokens)]
        assert [name for name in got if name != long] == running, f"step {engine.num_steps}"
        chunks = [event for event in message.events if isinstance(event, RequestChunk)]
        assert [event.request_id for event in chunks] == [long]
        assert chunks[0].num_tokens == min(60, 2000 - chunks[0].start)
        num_chunks += 1
    assert num_chunks == -(-2000 // 60)
    engine.run(max_steps=200)
    engine.check_at_rest()


def test_2000_token_prompts_one_behind_the_other_leave_every_decode_its_token() -> None:
    engine = ScriptedEngine(num_blocks=1000, block_size=16, max_num_seqs=8, max_num_batched_tokens=64)
    params = SamplingParams(max_tokens=150, ignore_eos=True)
    running = [engine.add(distinct_tokens(6, salt=number), params=params) for number in range(5)]
    engine.step()
    for number in range(3):
        engine.add(distinct_tokens(2000, salt=77 + number), max_tokens=1)
    for _ in range(100):
        message = engine.step()
        got = {event.request_id for event in message.events if isinstance(event, RequestTokens)}
        assert got >= set(running)
        (finished,) = [event for event in message.events if isinstance(event, StepFinished)]
        assert finished.num_prefill_tokens + finished.num_decode_tokens <= 64
    assert sum((f"r{number}", 0) in engine.ends for number in (6, 7, 8)) == 2
