"""The order of a step: decodes, prefill chunks, admissions; one budget, one queue."""

import pytest

from engine.events import (
    RequestChunk,
    RequestEvent,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    SequenceFinished,
)
from engine.execution.executor import SampledToken, SamplingRow
from engine.schedule import BlockedOn
from tests.support.scheduler_bench import EOS, SchedulerBench


def test_one_request_is_said_from_arrival_to_end() -> None:
    bench = SchedulerBench(num_kv_blocks=8)
    bench.add("a", 6, max_tokens=2)
    assert bench.steps(2) == [["a:6"], ["a."]]
    assert [line for line in bench.events() if line.startswith("a ")] == [
        "a arrives",
        "a queues, 1 wait",
        "a finds 0 of 6: cold",
        "a is scheduled, 0 cached",
        "a gets 0 at 0",
        "a gets 1 at 1",
        "a computes 6 from 0",
        "a publishes 0 below -1",
        "a has its first token",
        "a gets 1 tokens, has 1",
        "a gets 1 tokens, has 2",
        "a lets go of 1, refs 0",
        "a lets go of 0, refs 0",
        "a ends: length with 2",
        "a finishes: length with 2",
    ]
    assert bench.tokens("a") == [1006, 1007]
    assert not bench.scheduler.has_work


def test_decodes_come_before_chunks_and_chunks_before_admissions() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_batched_tokens=10)
    bench.add("a", 3, max_tokens=9)
    bench.step()
    bench.add("b", 25, max_tokens=9)
    bench.add("c", 4, max_tokens=9)
    assert bench.steps(5) == [
        ["a.", "b:9"],
        ["a.", "b:9"],
        ["a.", "b:7", "c:2"],
        ["a.", "b.", "c:2"],
        ["a.", "b.", "c."],
    ]


def test_long_prompt_never_stops_running_decodes() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_batched_tokens=8)
    bench.add("a", 3, max_tokens=40)
    bench.step()
    bench.add("b", 100, max_tokens=1)
    shares = bench.steps(15)
    assert all(share[0] == "a." for share in shares)
    assert [share[1] for share in shares] == ["b:7"] * 14 + ["b:2"]


@pytest.mark.parametrize("budget", [8, 9, 64])
def test_scheduled_tokens_never_exceed_the_budget(budget: int) -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_batched_tokens=budget)
    for name in "abcdefghij":
        bench.add(name, 17, max_tokens=5)
    bench.run(max_steps=60)  # bench.plan asserts the budget in each step
    assert set(bench.ends().values()) == {"length"}


def test_queue_is_ordered_by_priority_then_age() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_seqs=1)
    bench.add("running", 4, max_tokens=2)
    bench.step()
    for name, priority in (("a", 1), ("b", 0), ("c", 1), ("d", -1), ("e", 0)):
        bench.add(name, 4, priority=priority, max_tokens=1)
    assert [name for name, _ in bench.scheduler.waiting_ids] == ["d", "b", "e", "a", "c"]
    bench.events()
    bench.run(max_steps=20)
    assert bench.events(RequestScheduled) == [f"{name} is scheduled, 0 cached" for name in "dbeac"]


def test_head_of_the_queue_says_what_it_waits_for() -> None:
    bench = SchedulerBench(num_kv_blocks=4, max_num_seqs=2, max_num_batched_tokens=8, max_model_len=16)
    assert bench.plan().blocked_on is BlockedOn.NOTHING
    bench.add("a", 8, max_tokens=8)
    bench.add("b", 4, max_tokens=4)
    schedule = bench.plan()
    assert schedule.blocked_on is BlockedOn.TOKEN_BUDGET
    bench.finish(schedule)
    bench.abort("b")
    bench.add("c", 8, max_tokens=2)
    schedule = bench.plan()
    assert schedule.blocked_on is BlockedOn.KV_BLOCKS
    bench.finish(schedule)
    bench.abort("c")
    bench.add("d", 1, max_tokens=9)
    bench.step()
    bench.add("e", 1, max_tokens=1)
    assert bench.plan().blocked_on is BlockedOn.MAX_NUM_SEQS


def test_requests_that_end_make_room_in_the_next_step() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_seqs=1)
    bench.add("a", 4, max_tokens=1)
    bench.add("b", 4, max_tokens=1)
    assert bench.steps(2) == [["a:4"], ["b:4"]]


def test_equal_prompts_that_arrive_together_are_computed_once() -> None:
    bench = SchedulerBench(num_kv_blocks=64)
    prompt = list(range(9))
    for name in "abc":
        bench.add(name, prompt, max_tokens=2)
    schedule = bench.plan()
    assert (len(schedule.entries), schedule.blocked_on) == (1, BlockedOn.SHARED_PREFIX)
    bench.finish(schedule)
    assert bench.steps(2) == [["a.", "b:1", "c:1"], ["b.", "c."]]


def test_prefix_reuse_computes_exactly_the_theoretical_minimum() -> None:
    bench = SchedulerBench(
        num_kv_blocks=256, block_size=16, max_num_seqs=32, max_num_batched_tokens=2048, max_model_len=1024
    )
    system = list(range(512))
    suffixes = [[10_000 * (n + 1) + i for i in range(5 + n)] for n in range(32)]
    for number, suffix in enumerate(suffixes):
        bench.add(f"r{number}", system + suffix, max_tokens=1)
    bench.run(max_steps=10)
    assert bench.num_computed_tokens == 512 + sum(len(suffix) for suffix in suffixes)


def test_prefix_reuse_holds_for_chunks_smaller_than_the_shared_prompt() -> None:
    bench = SchedulerBench(
        num_kv_blocks=256, block_size=16, max_num_seqs=32, max_num_batched_tokens=96, max_model_len=1024
    )
    system = list(range(512))
    for number in range(32):
        bench.add(f"r{number}", [*system, 1000 + number, 7], max_tokens=1)
    bench.run(max_steps=40)
    assert bench.num_computed_tokens == 512 + 32 * 2


def test_newcomer_does_not_wait_for_the_prefix_of_a_lower_priority() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_batched_tokens=8)
    prompt = list(range(20))
    bench.add("a", prompt, priority=1, max_tokens=1)
    bench.step()
    bench.add("b", prompt, priority=0, max_tokens=1)
    schedule = bench.plan()
    assert [entry.seq.request_id for entry in schedule.entries] == ["a"]  # it runs, and takes the whole budget
    assert schedule.blocked_on is BlockedOn.TOKEN_BUDGET
    bench.finish(schedule)
    assert bench.step() == ["a:4", "b:4"]  # both compute the last block


# --- ends ------------------------------------------------------------------------------------------------------------


def ending_with(*token_ids: int) -> SchedulerBench:
    """A bench whose request gets these tokens, then 7s."""
    answers = dict(enumerate(token_ids))

    def sample(row: SamplingRow) -> SampledToken:
        return SampledToken(answers.get(row.position - row.seq.num_prompt_tokens, 7))

    return SchedulerBench(num_kv_blocks=16, sample=sample, max_model_len=32)


def test_end_of_sequence_stops_a_choice_and_is_part_of_its_tokens() -> None:
    bench = ending_with(5, EOS)
    bench.add("a", 4, max_tokens=9, ignore_eos=False)
    bench.run(max_steps=9)
    assert (bench.tokens("a"), bench.ends()) == ([5, EOS], {"a": "stop"})
    assert bench.outputs[-1].stop_token_id == EOS
    assert bench.events(SequenceFinished, RequestFinished) == ["a ends: stop with 2", "a finishes: stop with 2"]


def test_ignored_end_of_sequence_goes_on() -> None:
    bench = ending_with(EOS, EOS)
    bench.add("a", 4, max_tokens=3, ignore_eos=True)
    bench.run(max_steps=9)
    assert (bench.tokens("a"), bench.ends()) == ([EOS, EOS, 7], {"a": "length"})


def test_stop_token_id_stops_even_when_end_of_sequence_is_ignored() -> None:
    bench = ending_with(5, 6, 8)
    bench.add("a", 4, max_tokens=9, stop_token_ids=(8, 6))
    bench.run(max_steps=9)
    assert (bench.tokens("a"), bench.outputs[-1].stop_token_id) == ([5, 6], 6)


def test_stop_token_at_the_length_limit_is_a_stop() -> None:
    bench = ending_with(5, EOS)
    bench.add("a", 4, max_tokens=2, ignore_eos=False)
    bench.run(max_steps=9)
    assert bench.ends() == {"a": "stop"}


def test_service_stop_ends_a_choice_and_counts_the_overrun() -> None:
    bench = SchedulerBench(num_kv_blocks=16)
    bench.add("a", 4, max_tokens=9)
    bench.steps(4)
    bench.events()
    (output,) = bench.scheduler.stop_choice("a", 0, 2)
    assert (output.finish_reason, output.token_ids) == ("stop", [])
    assert bench.events(RequestEvent)[-2:] == ["a ends: stop with 2, 2 overrun", "a finishes: stop with 2"]
    assert (bench.scheduler.has_work, bench.blocks.counts.referenced) == (False, 0)


@pytest.mark.parametrize(("request_id", "index", "num_tokens"), [("x", 0, 1), ("a", 1, 1), ("a", 0, 5)])
def test_service_stop_for_what_is_not_there_is_counted_and_ignored(
    request_id: str, index: int, num_tokens: int
) -> None:
    bench = SchedulerBench(num_kv_blocks=16)
    bench.add("a", 4, max_tokens=9)
    bench.steps(2)
    assert bench.scheduler.stop_choice(request_id, index, num_tokens) == []
    assert bench.scheduler.num_ignored == 1
    assert bench.scheduler.num_running == 1


def test_service_stop_of_a_preempted_choice_takes_it_out_of_the_queue() -> None:
    bench = SchedulerBench(num_kv_blocks=6, max_model_len=24)
    bench.add("a", 8, max_tokens=9)
    bench.add("b", 8, max_tokens=9)
    while not bench.events(RequestPreempted):
        bench.step()
    bench.scheduler.stop_choice("b", 0, 1)
    assert (bench.scheduler.num_waiting, bench.scheduler.num_running) == (0, 1)
    bench.run(max_steps=9)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_prompt_larger_than_the_pool_is_refused_at_once_with_both_numbers() -> None:
    bench = SchedulerBench(block_size=16, num_kv_blocks=63, max_model_len=2048, max_num_batched_tokens=512)
    (output,) = bench.add("big", 1500, max_tokens=1)
    assert (output.finish_reason, output.error_type) == ("error", "invalid_request_error")
    assert output.error == "`prompt` needs 1501 tokens, but the KV cache holds at most 1008 tokens"
    assert bench.events() == [
        "big arrives",
        f"big is rejected: invalid_request_error: {output.error}",
    ]
    bench.add("small", 10, max_tokens=3)
    bench.run(max_steps=3)
    assert bench.ends() == {"big": "error", "small": "length"}


def test_prompt_longer_than_the_model_is_refused_with_the_models_limit() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_model_len=20)
    (output,) = bench.add("a", 20, max_tokens=1)
    assert output.error == "`prompt` needs 21 tokens, but this model's context holds at most 20 tokens"


def test_prompt_and_output_that_can_never_fit_are_refused() -> None:
    bench = SchedulerBench(block_size=16, num_kv_blocks=40, max_num_batched_tokens=512)
    (output,) = bench.add("a", 630, max_tokens=20)
    assert output.error == "`prompt + max_tokens` needs 650 tokens, but the KV cache holds at most 640 tokens"
    assert not bench.add("b", 630, max_tokens=10)
    bench.run(max_steps=20)
    assert len(bench.tokens("b")) == 10


def test_truncation_serves_until_full_and_ends_with_length() -> None:
    bench = SchedulerBench(block_size=16, num_kv_blocks=40, max_num_batched_tokens=512, overflow="truncate")
    assert not bench.add("a", 630, max_tokens=20)
    bench.run(max_steps=20)
    assert (len(bench.tokens("a")), bench.ends()) == (10, {"a": "length"})


def test_truncation_still_refuses_a_prompt_without_room_for_one_token() -> None:
    bench = SchedulerBench(num_kv_blocks=4, overflow="truncate")
    assert bench.add("a", 16, max_tokens=1)[0].finish_reason == "error"
    assert not bench.add("b", 15, max_tokens=9)


def test_more_choices_than_seats_are_refused() -> None:
    bench = SchedulerBench(num_kv_blocks=64, max_num_seqs=4)
    outputs = bench.add("a", 4, n=5)
    assert [output.index for output in outputs] == [0, 1, 2, 3, 4]
    assert outputs[0].error == "`n` must be at most 4, the sequences that run at once, got 5"


def test_empty_prompt_is_refused() -> None:
    assert SchedulerBench(num_kv_blocks=4).add("a", [])[0].error == "`prompt` must have at least one token, got 0"


# --- aborts ----------------------------------------------------------------------------------------------------------


def test_abort_while_waiting_leaves_the_queue() -> None:
    bench = SchedulerBench(num_kv_blocks=16, max_num_seqs=1)
    for name in "abc":
        bench.add(name, 4, max_tokens=2)
    bench.step()
    bench.events()
    (output,) = bench.abort("b")
    assert (output.request_id, output.finish_reason) == ("b", "abort")
    assert bench.events() == ["b is aborted with 0: cancelled"]
    assert bench.scheduler.waiting_ids == [("c", 0)]
    bench.run(max_steps=9)
    assert bench.ends() == {"a": "length", "c": "length"}


def test_abort_in_the_middle_of_a_prefill_frees_everything_before_the_next_step() -> None:
    bench = SchedulerBench(num_kv_blocks=32, max_num_batched_tokens=8)
    bench.add("a", 100, max_tokens=9)
    bench.steps(3)
    bench.abort("a")
    assert bench.blocks.counts.referenced == 0
    assert (bench.scheduler.has_work, bench.step()) == (False, [])


def test_abort_of_an_unknown_id_is_counted_and_ignored() -> None:
    bench = SchedulerBench(num_kv_blocks=16)
    bench.add("a", 4, max_tokens=1)
    bench.run(max_steps=2)
    bench.events()
    assert bench.abort("a") == []
    assert bench.abort("never-there") == []
    assert (bench.scheduler.num_ignored, bench.events()) == (2, [])


def test_abort_after_the_step_that_finished_it_changes_nothing() -> None:
    bench = SchedulerBench(num_kv_blocks=16)
    bench.add("a", 4, max_tokens=1)
    schedule = bench.plan()
    bench.finish(schedule)
    assert bench.abort("a") == []
    assert (bench.ends(), bench.scheduler.num_ignored) == ({"a": "length"}, 1)


def test_late_result_for_an_aborted_request_is_dropped() -> None:
    bench = SchedulerBench(num_kv_blocks=16)
    bench.add("a", 4, max_tokens=9)
    bench.add("b", 4, max_tokens=9)
    schedule = bench.plan()
    bench.abort("a")
    outputs = bench.finish(schedule)
    assert [output.request_id for output in outputs] == ["b"]
    assert bench.scheduler.num_running == 1


def test_thousand_aborted_requests_leave_a_small_queue() -> None:
    bench = SchedulerBench(num_kv_blocks=16, max_num_seqs=1)
    bench.add("a", 4, max_tokens=3)
    bench.step()
    for number in range(1000):
        bench.add(f"x{number}", 4)
    for number in range(1000):
        bench.abort(f"x{number}")
    bench.add("b", 4, max_tokens=1)
    bench.events()
    bench.run(max_steps=9)
    assert bench.scheduler.waiting_ids == []
    assert bench.events(RequestScheduled, RequestChunk) == [
        "b is scheduled, 0 cached",
        "b computes 4 from 0",
    ]
