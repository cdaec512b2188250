"""Faults known from servers of this kind, at the engine's level: cancellation, prefix cache, poisoned rows."""

import pytest

from engine.events import RequestChunk, RequestScheduled, RequestTokens
from engine.execution.forward_batch import ForwardBatch
from engine.messages import TokenLogprobs
from engine.sampling_params import SamplingParams
from tests.support.liveness import run_watched
from tests.support.plain_model import distinct_tokens, solo_output
from tests.support.scripted_engine import ScriptedEngine


def cached_tokens(engine: ScriptedEngine) -> list[int]:
    return [event.num_cached_tokens for event in engine.events if isinstance(event, RequestScheduled)]


# --- cancellation ------------------------------------------------------------------------------------------------


def test_abort_before_any_block_was_given_out_ends_once_and_leaves_the_running_one_alone() -> None:
    engine = ScriptedEngine(num_blocks=20, block_size=8, max_num_seqs=1)
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    prompt = distinct_tokens(20, salt=1)
    engine.add(prompt, request_id="a", params=params)
    engine.add(distinct_tokens(20, salt=2), request_id="b", params=params)
    engine.step()
    engine.abort("b")
    engine.abort("b")
    run_watched(engine, max_steps=9)
    assert engine.outputs["a", 0] == solo_output(prompt, params)[0]
    assert engine.ends == {("a", 0): "length", ("b", 0): "abort"}
    assert engine.check_at_rest().num_ended == {"finished": 1, "aborted": 1}


@pytest.mark.parametrize("num_outputs", [1, 5])
def test_abort_in_the_middle_of_the_forward_pass_drops_the_result_and_frees_once(num_outputs: int) -> None:
    """Also of the very step that would have finished the request."""

    def abort_mid_forward(call: int, batch: ForwardBatch) -> None:
        if call == num_outputs:
            engine.core.abort("a", "client gone")

    engine = ScriptedEngine(num_blocks=20, block_size=8, cues=(abort_mid_forward,))
    params = SamplingParams(max_tokens=num_outputs, ignore_eos=True)
    other = distinct_tokens(12, salt=2)
    engine.add(distinct_tokens(20, salt=1), request_id="a", params=params)
    engine.add(other, request_id="b", max_tokens=9, ignore_eos=True)
    engine.run(max_steps=9)
    assert engine.ends == {("a", 0): "abort", ("b", 0): "length"}
    assert len(engine.outputs["a", 0]) == num_outputs - 1
    assert engine.outputs["b", 0] == solo_output(other, SamplingParams(max_tokens=9, ignore_eos=True))[0]
    engine.check_at_rest()


def test_abort_after_the_step_that_finished_the_request_is_ignored_and_counted() -> None:
    engine = ScriptedEngine(num_blocks=20, block_size=8)
    engine.add(distinct_tokens(20, salt=1), request_id="a", max_tokens=1)
    engine.step()
    engine.abort("a")
    engine.abort("nobody")
    engine.stop_choice("nobody", 0, 1)
    assert engine.ends == {("a", 0): "length"}
    assert engine.scheduler.num_ignored == 3
    engine.check_at_rest()


def test_abort_during_the_prefill_of_30000_tokens_stops_at_the_next_chunk() -> None:
    engine = ScriptedEngine(num_blocks=2000, block_size=16, max_num_batched_tokens=512)
    engine.add(distinct_tokens(30_000, salt=1), request_id="a", max_tokens=100)
    for _ in range(3):
        engine.step()
    engine.abort("a")
    assert not engine.core.has_work
    assert engine.blocks.counts.referenced == 0
    assert [event.start for event in engine.events if isinstance(event, RequestChunk)] == [0, 512, 1024]
    assert not engine.kinds(RequestTokens)
    engine.check_at_rest()


def test_fifty_streams_closed_at_once_leave_nothing_running_without_another_step() -> None:
    engine = ScriptedEngine(num_blocks=400, block_size=8, max_num_seqs=40, max_num_batched_tokens=256)
    names = [engine.add(distinct_tokens(30, salt=number), max_tokens=500, ignore_eos=True) for number in range(50)]
    for _ in range(10):
        engine.step()
    for name in names:
        engine.abort(name)
    report = engine.check_at_rest()
    assert report.num_ended == {"aborted": 50}
    assert report.num_blocks["referenced"] == 0


# --- prefix cache ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_fifty_prompts_of_three_blocks_give_the_same_with_cache_and_without(order: int) -> None:
    """Prompts from two tokens only, so that nearly every block of one is a block of some others, elsewhere."""
    prompts = [[8 + (number * 2654435761 >> place) % 2 for place in range(24)] for number in range(50)]
    outputs = []
    for prefix_cache in (True, False):
        engine = ScriptedEngine(num_blocks=30, block_size=8, max_num_batched_tokens=32, prefix_cache=prefix_cache)
        for prompt in prompts[::order]:
            engine.add(prompt, max_tokens=6)
        run_watched(engine, max_steps=500)
        engine.check_at_rest()
        outputs.append(engine.outputs)
        assert any(cached_tokens(engine)) == prefix_cache
    assert outputs[0] == outputs[1]


def test_prompt_whose_blocks_were_evicted_and_rewritten_misses_and_answers_as_at_first() -> None:
    engine = ScriptedEngine(num_blocks=8, block_size=4)
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    a, b = distinct_tokens(16, salt=1), distinct_tokens(30, salt=2)
    first = engine.add(a, params=params)
    engine.run(max_steps=2)
    assert engine.blocks.counts.cached == 4
    engine.add(b, params=params)
    engine.run(max_steps=2)
    again = engine.add(a, params=params)
    engine.run(max_steps=2)
    assert cached_tokens(engine) == [0, 0, 0]
    assert engine.outputs[again, 0] == engine.outputs[first, 0] == solo_output(a, params)[0]
    engine.check_at_rest()


def test_hit_on_a_cached_block_is_pinned_before_the_same_admission_evicts() -> None:
    """The hit is the least recently used block, the first that an eviction would take."""
    engine = ScriptedEngine(num_blocks=8, block_size=4)
    params = SamplingParams(max_tokens=1)
    a, b = distinct_tokens(9, salt=1), distinct_tokens(17, salt=2)
    engine.add(a, params=params)
    engine.run(max_steps=2)
    engine.add(b, params=params)
    engine.run(max_steps=2)
    assert engine.blocks.counts.cached == 6
    longer = a[:8] + distinct_tokens(20, salt=3)
    name = engine.add(longer, params=params)
    engine.run(max_steps=2)
    assert cached_tokens(engine)[-1] == 8
    assert engine.outputs[name, 0] == solo_output(longer, params)[0]
    engine.check_at_rest()


@pytest.mark.parametrize("num_prompt", [63, 64, 65])
def test_same_prompt_four_times_computes_its_last_token_and_answers_the_same(num_prompt: int) -> None:
    engine = ScriptedEngine(num_blocks=64, block_size=16)
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    prompt = distinct_tokens(num_prompt, salt=1)
    for _ in range(4):
        engine.add(prompt, params=params)
        engine.run(max_steps=24)
    assert [engine.outputs[f"r{number}", 0] for number in (1, 2, 3, 4)] == [solo_output(prompt, params)[0]] * 4
    assert cached_tokens(engine) == [0] + [num_prompt - 1] * 3
    engine.check_at_rest()


@pytest.mark.parametrize("num_prompt", [63, 64, 65])
def test_same_prompt_four_times_at_once_answers_the_same(num_prompt: int) -> None:
    engine = ScriptedEngine(num_blocks=64, block_size=16)
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    prompt = distinct_tokens(num_prompt, salt=1)
    for _ in range(4):
        engine.add(prompt, params=params)
    run_watched(engine, max_steps=30)
    assert list(engine.outputs.values()) == [solo_output(prompt, params)[0]] * 4
    assert all(num_cached < num_prompt for num_cached in cached_tokens(engine))
    engine.check_at_rest()


@pytest.mark.parametrize("chunk", [*range(1, 10), 64])
def test_chunk_of_any_size_gives_the_same_as_one_shot(chunk: int) -> None:
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    for num_prompt in (1, 7, 8, 9, 23, 24, 25):
        prompt = distinct_tokens(num_prompt, salt=num_prompt)
        engine = ScriptedEngine(num_blocks=12, block_size=8, max_num_seqs=1, max_num_batched_tokens=chunk)
        engine.add(prompt, params=params)
        run_watched(engine, max_steps=-(-num_prompt // chunk) + 11)
        assert engine.outputs["r1", 0] == solo_output(prompt, params)[0]


def prompt_logprobs(engine: ScriptedEngine, prompt: list[int]) -> list[TokenLogprobs]:
    """Run one request that wants them and return what came, in order."""
    name = engine.add(prompt, max_tokens=1, prompt_logprobs=1, logprobs=1)
    found = []
    while (name, 0) not in engine.ends:
        for output in engine.step().outputs:
            found.extend(output.prompt_logprobs)
    return found


def test_prompt_logprobs_are_the_same_with_cache_and_chunks_as_without_either() -> None:
    """33 tokens in blocks of 16, twice; then two overlapping prompts in both orders; then in chunks of 8."""
    prompt = distinct_tokens(33, salt=1)
    overlapping = prompt[:20] + distinct_tokens(13, salt=2)
    plain = {
        tuple(tokens): prompt_logprobs(
            ScriptedEngine(num_blocks=20, block_size=16, max_num_batched_tokens=64, prefix_cache=False), tokens
        )
        for tokens in (prompt, overlapping)
    }
    for tokens, logprobs in plain.items():
        assert [entry.chosen.token_id for entry in logprobs] == list(tokens[1:])
    for budget in (64, 8):
        for order in ([prompt, prompt], [prompt, overlapping], [overlapping, prompt]):
            engine = ScriptedEngine(num_blocks=20, block_size=16, max_num_seqs=4, max_num_batched_tokens=budget)
            for tokens in order:
                assert prompt_logprobs(engine, tokens) == plain[tuple(tokens)]
            engine.check_at_rest()


# --- poisoned rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing_at", [0, 3])
def test_nan_row_among_three_fails_its_request_alone_and_leaves_nothing_of_it_in_the_cache(failing_at: int) -> None:
    """At prefill (before the first token) and at decode."""
    engine = ScriptedEngine(num_blocks=40, block_size=4, row_errors={"poisoned": failing_at})
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    prompts = {name: distinct_tokens(17, salt=ord(name[0])) for name in ("a", "poisoned", "z")}
    for name, prompt in prompts.items():
        engine.add(prompt, request_id=name, params=params)
    engine.run(max_steps=10)
    assert engine.ends == {("poisoned", 0): "error", ("a", 0): "length", ("z", 0): "length"}
    assert "contain NaN" in engine.errors["poisoned"]
    assert len(engine.outputs["poisoned", 0]) == failing_at
    for name in ("a", "z"):
        assert engine.outputs[name, 0] == solo_output(prompts[name], params)[0]
    assert engine.check_at_rest().num_ended == {"failed": 1, "finished": 2}
    engine.add(prompts["poisoned"], max_tokens=1)
    engine.run(max_steps=2)
    assert cached_tokens(engine)[-1] == 0


@pytest.mark.parametrize("number", range(1, 9))
def test_step_that_raises_fails_everything_in_flight_once_and_the_engine_goes_on(number: int) -> None:
    """Fail the n-th step for n = 1, 2, 3 ...: no block is lost, and what comes later is served rightly."""
    raised = []

    def fail(call: int, batch: ForwardBatch) -> None:
        if call == number:
            raised.append(call)
            raise RuntimeError("device lost")

    engine = ScriptedEngine(num_blocks=14, block_size=4, max_num_seqs=3, max_num_batched_tokens=8, cues=(fail,))
    params = SamplingParams(max_tokens=6, n=2, ignore_eos=True)
    for salt in range(4):
        engine.add(distinct_tokens(9, salt=salt), params=params)
    with pytest.raises(RuntimeError, match="device lost"):
        engine.run(max_steps=200)
    assert raised == [number]
    report = engine.check_at_rest()
    assert report.num_ended["failed"] + report.num_ended.get("finished", 0) == 4
    later = distinct_tokens(9, salt=1)
    engine.add(later, request_id="later", params=params)
    run_watched(engine, max_steps=40)
    for index in range(2):
        assert engine.outputs["later", index] == solo_output(later, params, index=index)[0]
    engine.check_at_rest()
