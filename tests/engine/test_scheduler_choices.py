"""Requests with several choices, prompt log probabilities, several tokens a step, and rows that fail."""

from engine.events import (
    BlockCopied,
    BlockShared,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    RequestPreempted,
    SequenceFinished,
)
from engine.execution.executor import SampledToken, SamplingRow
from engine.messages import LogprobEntry, TokenLogprobs
from engine.schedule import BlockedOn
from tests.support.scheduler_bench import SchedulerBench


def by_index(row: SamplingRow) -> SampledToken:
    """Choose 1000 * (choice + 1) + position."""
    return SampledToken(1000 * (row.index + 1) + row.position)


def test_choices_fork_after_prefill_and_share_the_prompt() -> None:
    bench = SchedulerBench(num_kv_blocks=16, sample=by_index)
    bench.add("a", 6, n=3, max_tokens=3)
    assert bench.steps(3) == [["a:6"], ["a.", "a/1.", "a/2."], ["a.", "a/1.", "a/2."]]
    assert [bench.tokens("a", index) for index in range(3)] == [
        [1006, 1007, 1008],
        [2006, 2007, 2008],
        [3006, 3007, 3008],
    ]
    assert bench.events(BlockShared, BlockCopied, SequenceFinished, RequestFinished) == [
        "a/1 shares 0 at 0, refs 2",
        "a/1 shares 1 at 1, refs 2",
        "a/2 shares 0 at 0, refs 3",
        "a/2 shares 1 at 1, refs 3",
        "a copies 2 of 1 to 2",
        "a/1 copies 2 of 1 to 3",
        "a ends: length with 3",
        "a/1 ends: length with 3",
        "a/2 ends: length with 3",
        "a finishes: length with 9",
    ]


def test_choices_of_a_block_aligned_prompt_copy_nothing() -> None:
    bench = SchedulerBench(num_kv_blocks=16, sample=by_index)
    bench.add("a", 8, n=4, max_tokens=3)
    bench.run(max_steps=5)
    assert bench.events(BlockCopied) == []


def test_request_with_choices_needs_a_seat_for_each() -> None:
    bench = SchedulerBench(num_kv_blocks=32, max_num_seqs=3, sample=by_index)
    bench.add("a", 4, n=2, max_tokens=2)
    bench.add("b", 4, n=2, max_tokens=2)
    schedule = bench.plan()
    assert ([entry.seq.request_id for entry in schedule.entries], schedule.blocked_on) == (
        ["a"],
        BlockedOn.MAX_NUM_SEQS,
    )
    bench.finish(schedule)
    bench.run(max_steps=10)
    assert len(bench.ends()) == 4


def test_choice_that_ends_early_frees_a_seat_and_leaves_the_others_alone() -> None:
    def sample(row: SamplingRow) -> SampledToken:
        return SampledToken(0 if row.index == 1 else 5)

    bench = SchedulerBench(num_kv_blocks=32, max_num_seqs=3, sample=sample)
    bench.add("a", 4, n=3, max_tokens=4, ignore_eos=False)
    bench.step()
    assert bench.scheduler.num_running == 2
    bench.add("b", 4, max_tokens=1)
    assert bench.step() == ["a.", "a/2.", "b:4"]
    bench.run(max_steps=5)
    assert bench.ends() == {"a": "length", "a/1": "stop", "a/2": "length", "b": "length"}
    assert "a finishes: length with 9" in bench.events(RequestFinished)


def test_all_choices_that_stop_make_the_request_a_stop() -> None:
    bench = SchedulerBench(num_kv_blocks=32, sample=lambda row: SampledToken(0))
    bench.add("a", 4, n=2, max_tokens=4, ignore_eos=False)
    bench.run(max_steps=5)
    assert bench.events(RequestFinished) == ["a finishes: stop with 2"]


def test_choices_are_preempted_and_resumed_one_by_one() -> None:
    bench = SchedulerBench(num_kv_blocks=7, sample=by_index)
    bench.add("a", 6, n=4, max_tokens=12)
    bench.run(max_steps=80)
    assert bench.events(RequestPreempted)[0].startswith("a/3 is preempted")
    for index in range(4):
        assert bench.tokens("a", index) == [1000 * (index + 1) + 6 + i for i in range(12)]


def test_request_preempted_before_it_forked_forks_after_its_second_prefill() -> None:
    bench = SchedulerBench(num_kv_blocks=10, max_num_batched_tokens=8, max_num_seqs=4, sample=by_index)
    bench.add("a", 6, priority=5, max_tokens=20)
    bench.add("b", 24, priority=5, n=2, max_tokens=3)
    bench.steps(2)
    bench.add("urgent", 24, priority=0, max_tokens=1)
    bench.run(max_steps=60)
    assert "b is preempted, loses 23, time 1" in bench.events(RequestPreempted)
    assert [bench.tokens("b", index) for index in range(2)] == [[1024, 1025, 1026], [2024, 2025, 2026]]


def test_abort_ends_all_choices() -> None:
    bench = SchedulerBench(num_kv_blocks=16, sample=by_index)
    bench.add("a", 6, n=3, max_tokens=9)
    bench.steps(2)
    bench.events()
    assert [(output.index, output.finish_reason) for output in bench.abort("a")] == [(i, "abort") for i in range(3)]
    assert bench.events(RequestEvent) == ["a is aborted with 6: cancelled"]
    assert bench.blocks.counts.referenced == 0


def test_abort_before_the_fork_ends_unborn_choices_too() -> None:
    bench = SchedulerBench(num_kv_blocks=16, max_num_batched_tokens=8)
    bench.add("a", 20, n=3)
    bench.step()
    assert [output.index for output in bench.abort("a")] == [0, 1, 2]


def test_service_stop_of_one_choice_leaves_the_others() -> None:
    bench = SchedulerBench(num_kv_blocks=16, sample=by_index)
    bench.add("a", 6, n=2, max_tokens=4)
    bench.steps(2)
    bench.scheduler.stop_choice("a", 1, 1)
    bench.events()
    bench.run(max_steps=5)
    assert bench.events(RequestFinished) == ["a finishes: length with 5"]


# --- rows that fail --------------------------------------------------------------------------------------------------


def failing(*names: str, at: int = 0) -> SchedulerBench:
    """A bench in which the rows of some requests fail at their `at`-th output token."""

    def sample(row: SamplingRow) -> SampledToken:
        if row.seq.request_id in names and row.position - row.seq.num_prompt_tokens >= at:
            return SampledToken(-1, error=f"logits at position {row.position - 1} contain NaN")
        return SampledToken(1000 + row.position)

    return SchedulerBench(num_kv_blocks=16, sample=sample)


def test_failed_row_fails_its_request_alone_and_caches_nothing_of_it() -> None:
    bench = failing("b")
    for name in "abc":
        bench.add(name, 8, max_tokens=3)
    bench.step()
    assert bench.events(RequestFailed) == [
        "b fails with 0: internal_error: logits at position 7 contain NaN",
    ]
    assert [(o.error, o.error_type) for o in bench.outputs if o.request_id == "b"] == [
        ("logits at position 7 contain NaN", "internal_error")
    ]
    bench.run(max_steps=5)
    assert bench.ends() == {"a": "length", "b": "error", "c": "length"}
    again = bench.blocks.counts.cached
    bench.add("b", 8, max_tokens=1)
    schedule = bench.plan()
    assert [(entry.start, entry.num_tokens) for entry in schedule.entries] == [(0, 8)]
    assert again == 4


def test_row_that_fails_later_withdraws_what_its_request_had_published() -> None:
    bench = failing("a", at=5)
    bench.add("a", 8, max_tokens=9)
    bench.run(max_steps=9)
    assert bench.tokens("a") == [1008, 1009, 1010, 1011, 1012]
    assert bench.events(RequestFailed) == ["a fails with 5: internal_error: logits at position 12 contain NaN"]
    assert bench.blocks.counts.cached == 0


def test_failed_row_of_one_choice_fails_the_request_once() -> None:
    def sample(row: SamplingRow) -> SampledToken:
        return SampledToken(-1, error="NaN") if row.index == 1 and row.position == 9 else by_index(row)

    bench = SchedulerBench(num_kv_blocks=16, sample=sample)
    bench.add("a", 8, n=3, max_tokens=5)
    bench.run(max_steps=9)
    assert bench.ends() == {"a": "error", "a/1": "error", "a/2": "error"}
    assert len(bench.events(RequestFailed)) == 1
    assert bench.blocks.counts.cached == 0


# --- prompt log probabilities ----------------------------------------------------------------------------------------


def with_logprobs(row: SamplingRow) -> SampledToken:
    token_id = row.given_token if row.given_token >= 0 else 1000 + row.position
    return SampledToken(token_id, TokenLogprobs(LogprobEntry(token_id, -row.position / 8), []))


def prompt_logprobs(bench: SchedulerBench, name: str) -> list[int]:
    outputs = [output for output in bench.outputs if output.request_id == name]
    return [entry.chosen.token_id for output in outputs for entry in output.prompt_logprobs]


def test_prompt_logprobs_come_once_for_each_position_but_the_first() -> None:
    for budget in (64, 8):
        bench = SchedulerBench(num_kv_blocks=64, max_num_batched_tokens=budget, sample=with_logprobs)
        prompt = list(range(100, 133))
        for name in "ab":
            bench.add(name, prompt, prompt_logprobs=0, max_tokens=1)
        bench.run(max_steps=20)
        assert prompt_logprobs(bench, "a") == prompt[1:]
        assert prompt_logprobs(bench, "b") == prompt[1:]


def test_prompt_logprobs_are_not_repeated_after_a_preemption() -> None:
    bench = SchedulerBench(num_kv_blocks=10, max_num_batched_tokens=8, sample=with_logprobs)
    prompt = list(range(100, 124))
    bench.add("a", 4, priority=5, max_tokens=20)
    bench.add("b", prompt, priority=5, prompt_logprobs=0, max_tokens=8)
    bench.steps(3)
    bench.add("urgent", 24, priority=0, max_tokens=1)
    bench.run(max_steps=80)
    assert [line for line in bench.events(RequestPreempted) if line.startswith("b ")]
    assert prompt_logprobs(bench, "b") == prompt[1:]


def test_prompt_logprobs_of_choices_come_with_the_first_one_only() -> None:
    bench = SchedulerBench(num_kv_blocks=16, sample=with_logprobs)
    bench.add("a", [100, 101, 102], n=2, prompt_logprobs=0, max_tokens=2)
    bench.run(max_steps=5)
    assert prompt_logprobs(bench, "a") == [101, 102]


# --- several tokens a step -------------------------------------------------------------------------------------------


def test_several_sampled_tokens_are_taken_up_to_the_one_that_ends_the_choice() -> None:
    bench = SchedulerBench(num_kv_blocks=16)
    bench.add("a", 4, max_tokens=3)
    bench.step()
    schedule = bench.plan()
    (seq,) = bench.scheduler.running
    rows = [SamplingRow(i, seq, 0, 5 + i) for i in range(4)]
    (output,) = bench.scheduler.update(schedule, rows, [SampledToken(token) for token in (11, 12, 13, 14)])
    assert (output.token_ids, output.finish_reason) == ([11, 12], "length")
    assert bench.blocks.counts.referenced == 0
