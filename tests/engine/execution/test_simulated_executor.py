"""The scripted executor: what it must catch, what it must let pass."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from engine.clock import ManualClock
from engine.execution.executor import SamplingRow
from engine.execution.forward_batch import ForwardBatch, build_forward_batch
from engine.execution.shadow_kv import EMPTY_HISTORY, ShadowKVError, extend_history, history_of
from engine.execution.simulated_executor import (
    Gate,
    ScriptedExecutor,
    ScriptedFailureError,
    ScriptedLogits,
    ScriptedSampler,
    fail_on_call,
    hashed_token,
    hashed_tokens,
    linear_cost,
    listed_tokens,
)
from engine.sampling_params import SamplingParams
from engine.schedule import Schedule, ScheduledSequence
from engine.sequence import EngineRequest, Sequence

BLOCK = 4


def sequence(prompt: list[int], table: list[int], *, request_id: str = "a", outputs: tuple[int, ...] = ()) -> Sequence:
    request = EngineRequest(request_id=request_id, prompt_token_ids=prompt, params=SamplingParams(), arrival=0.0)
    seq = Sequence(request)
    seq.block_table = table
    seq.output_token_ids = list(outputs)
    return seq


def batch_of(*shares: tuple[Sequence, int, int], copies: tuple[tuple[int, int], ...] = ()) -> ForwardBatch:
    """Build the batch of (sequence, start, num_tokens) shares."""
    entries = tuple(
        ScheduledSequence(
            seq=seq,
            start=start,
            num_tokens=count,
            is_decode=bool(seq.output_token_ids),
            needs_sample=start + count == seq.num_tokens,
        )
        for seq, start, count in shares
    )
    return build_forward_batch(Schedule(entries=entries, block_copies=copies), block_size=BLOCK)[0]


def executor(num_blocks: int = 8, **more: object) -> ScriptedExecutor:
    return ScriptedExecutor(num_blocks=num_blocks, block_size=BLOCK, **more)  # type: ignore[arg-type]


def test_history_of_same_tokens_in_other_order_differs() -> None:
    assert history_of([1, 2, 3]) != history_of([2, 1, 3])
    assert history_of([3], history_of([1, 2])) == history_of([1, 2, 3])
    assert extend_history(EMPTY_HISTORY, 0) != EMPTY_HISTORY


def test_execute_chunked_equals_one_shot() -> None:
    prompt = list(range(10))
    whole = executor().execute(batch_of((sequence(prompt, [5, 1, 3]), 0, 10)))
    chunked = executor()
    for start, count in ((0, 3), (3, 5)):
        assert chunked.execute(batch_of((sequence(prompt, [0, 7, 2]), start, count))).histories == ()
    last = chunked.execute(batch_of((sequence(prompt, [0, 7, 2]), 8, 2)))
    assert whole.histories == last.histories == (history_of(prompt),)


def test_execute_shared_full_block_passes() -> None:
    prompt = list(range(6))
    runner = executor()
    runner.execute(batch_of((sequence(prompt, [0, 1]), 0, 6)))
    out = runner.execute(batch_of((sequence([0, 1, 2, 3, 9], [0, 2], request_id="b"), 4, 1)))
    assert out.histories == (history_of([0, 1, 2, 3, 9]),)


def test_execute_slot_never_written_raises() -> None:
    with pytest.raises(ShadowKVError, match=r"position 0 from slot 8 \(block 2.*never written"):
        executor().execute(batch_of((sequence([1, 2, 3, 4, 5], [2, 3]), 4, 1)))


def test_execute_premature_publish_within_one_step_raises() -> None:
    """B reads block 0 in the very step that writes it."""
    a, b = sequence([1, 2, 3, 4], [0]), sequence([1, 2, 3, 4, 5], [0, 1], request_id="b")
    with pytest.raises(ShadowKVError, match="writes slot 0"):
        executor().execute(batch_of((b, 4, 1), (a, 0, 4)))


def test_execute_blocks_in_wrong_order_raises() -> None:
    prompt = list(range(9))
    runner = executor()
    runner.execute(batch_of((sequence(prompt, [0, 1, 2]), 0, 8)))
    with pytest.raises(ShadowKVError, match=r"position 0 from slot 4 .*holds a token of position 4"):
        runner.execute(batch_of((sequence(prompt, [1, 0, 2]), 8, 1)))


def test_execute_block_of_another_history_raises() -> None:
    runner = executor()
    runner.execute(batch_of((sequence([1, 2, 3, 4, 5, 6, 7, 8], [0, 1]), 0, 8)))
    runner.execute(batch_of((sequence([9, 2, 3, 4, 5, 6, 7, 8], [2, 3]), 0, 8)))
    with pytest.raises(ShadowKVError, match=r"position 4 .*another history"):
        runner.execute(batch_of((sequence([1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 3, 4]), 8, 1)))


def test_execute_stale_block_written_anew_raises() -> None:
    runner = executor()
    runner.execute(batch_of((sequence([1, 2, 3, 4], [0]), 0, 4)))
    runner.execute(batch_of((sequence([5, 6], [0], request_id="b"), 0, 2)))
    with pytest.raises(ShadowKVError, match=r"position 2 .*another history"):
        runner.execute(batch_of((sequence([1, 2, 3, 4, 5], [0, 1]), 4, 1)))


def test_sample_wellformed_prefix_of_another_sequence_raises() -> None:
    runner = executor()
    runner.execute(batch_of((sequence([9, 9, 9, 9], [0]), 0, 4)))
    mine = sequence([1, 2, 3, 4, 5], [0, 1])
    logits = runner.execute(batch_of((mine, 4, 1)))
    with pytest.raises(ShadowKVError, match="well-formed prefix of another sequence"):
        ScriptedSampler(hashed_tokens(32)).sample(logits, [SamplingRow(logits_row=0, seq=mine, index=0, position=5)])


def test_execute_two_forks_write_one_slot_raises() -> None:
    runner = executor()
    runner.execute(batch_of((sequence([1, 2], [0]), 0, 2)))
    forks = [sequence([1, 2], [0], outputs=(token,)) for token in (7, 8)]
    with pytest.raises(ShadowKVError, match=r"rows \[0, 1\] write the same slot 2"):
        runner.execute(batch_of((forks[0], 2, 1), (forks[1], 2, 1)))


def test_execute_missing_copy_on_write_in_later_step_raises() -> None:
    runner = executor()
    runner.execute(batch_of((sequence([1, 2], [0]), 0, 2)))
    runner.execute(batch_of((sequence([1, 2], [0], outputs=(7,)), 2, 1)))
    runner.execute(batch_of((sequence([1, 2], [0], outputs=(8,)), 2, 1)))
    seq = sequence([1, 2], [0], outputs=(7, 5))
    logits = runner.execute(batch_of((seq, 3, 1)))
    with pytest.raises(ShadowKVError, match="well-formed"):
        ScriptedSampler(hashed_tokens(32)).sample(logits, [SamplingRow(logits_row=0, seq=seq, index=0, position=4)])


def test_execute_copy_on_write_passes() -> None:
    runner = executor()
    runner.execute(batch_of((sequence([1, 2], [0]), 0, 2)))
    first, second = sequence([1, 2], [0], outputs=(7,)), sequence([1, 2], [1], outputs=(8,))
    out = runner.execute(batch_of((first, 2, 1), (second, 2, 1), copies=((0, 1),)))
    assert out.histories == (history_of([1, 2, 7]), history_of([1, 2, 8]))


def test_execute_copy_from_a_destination_raises() -> None:
    runner = executor()
    with pytest.raises(ShadowKVError, match="read a block that they also write"):
        runner.execute(batch_of((sequence([1], [0]), 0, 1), copies=((1, 2), (2, 3))))


def test_execute_block_outside_pool_raises() -> None:
    with pytest.raises(ShadowKVError, match=r"must lie in 0\.\.7: \[8\]"):
        executor().execute(batch_of((sequence([1, 2], [8]), 0, 2)))


def test_execute_block_twice_in_a_table_raises() -> None:
    with pytest.raises(ShadowKVError, match="holds a block twice"):
        executor().execute(batch_of((sequence(list(range(8)), [1, 1]), 0, 8)))


def test_execute_slot_mapping_off_the_table_raises() -> None:
    good = batch_of((sequence([1, 2], [3]), 0, 2))
    bad = ForwardBatch(
        token_ids=good.token_ids,
        positions=good.positions,
        slot_mapping=np.array([12, 14], dtype=np.int64),
        query_start=good.query_start,
        seq_lens=good.seq_lens,
        block_tables=good.block_tables,
        logits_rows=good.logits_rows,
        block_copies=good.block_copies,
    )
    with pytest.raises(ShadowKVError, match="slot_mapping of sequence 0"):
        executor().execute(bad)


def test_sampler_default_script_is_a_function_of_history_and_index() -> None:
    seq = sequence([1, 2, 3], [0])
    rows = [SamplingRow(logits_row=0, seq=seq, index=index, position=3) for index in (0, 1)]
    logits = ScriptedLogits(histories=(history_of([1, 2, 3]),))
    tokens = [token.token_id for token in ScriptedSampler(hashed_tokens(1000)).sample(logits, rows)]
    assert tokens == [hashed_token(history_of([1, 2, 3]), index, 1000) for index in (0, 1)]
    assert tokens[0] != tokens[1]


def test_sampler_listed_tokens_come_in_order_and_end_loudly() -> None:
    sampler = ScriptedSampler(listed_tokens({"a": [5, 6]}))
    logits = ScriptedLogits(histories=())
    seq = sequence([1, 2], [0])
    got = []
    for position in (2, 3):
        token = sampler.sample(logits, [SamplingRow(logits_row=0, seq=seq, index=0, position=position)])[0].token_id
        seq.output_token_ids.append(token)
        got.append(token)
    assert got == [5, 6]
    with pytest.raises(LookupError, match="has 2 tokens, asked for 3"):
        sampler.sample(logits, [SamplingRow(logits_row=0, seq=seq, index=0, position=4)])


def test_sampler_row_error_hits_only_its_request() -> None:
    sampler = ScriptedSampler(hashed_tokens(10), row_errors={"b": 0})
    rows = [
        SamplingRow(logits_row=0, seq=sequence([1], [0], request_id=name), index=0, position=1) for name in ("a", "b")
    ]
    first, second = sampler.sample(ScriptedLogits(histories=()), rows)
    assert first.error == ""
    assert second.error == "logits at position 1 contain NaN"


def test_cues_fail_and_cost_on_their_calls() -> None:
    clock = ManualClock()
    runner = executor(cues=(linear_cost(clock, step_s=1.0, token_s=0.25), fail_on_call(2)))
    runner.execute(batch_of((sequence([1, 2], [0]), 0, 2)))
    assert clock.now() == 1.5
    with pytest.raises(ScriptedFailureError, match="step 2"):
        runner.execute(batch_of((sequence([1, 2], [0]), 0, 2)))


def test_gate_holds_the_step_until_released() -> None:
    gate = Gate(1)
    runner = executor(cues=(gate,))
    done = threading.Event()

    def step() -> None:
        runner.execute(batch_of((sequence([1, 2], [0]), 0, 2)))
        done.set()

    thread = threading.Thread(target=step)
    thread.start()
    assert gate.entered.wait(10)
    assert not done.is_set()
    gate.released.set()
    thread.join(10)
    assert done.is_set()


def test_module_imports_without_torch() -> None:
    code = "import sys, engine.execution.simulated_executor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
