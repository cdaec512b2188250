from itertools import pairwise

import pytest

from tests.support.kv_bench import KVBench


def tokens(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


PROMPT = tokens(0, 10)  # of 4-token blocks: two full ones and two tokens


# --- allocation and release ------------------------------------------------------------------------------------------


def test_first_sequence_gets_the_first_blocks_and_publishes_the_full_ones() -> None:
    bench = KVBench(num_blocks=8)
    seq = bench.run("a", PROMPT)
    assert seq.block_table == [0, 1, 2]
    assert bench.events() == [
        "a gets 0 at 0",
        "a gets 1 at 1",
        "a gets 2 at 2",
        "a publishes 0 below -1",
        "a publishes 1 below 0",
    ]
    assert bench.counts == (5, 3, 0)
    assert bench.blocks.num_unwritten_slots == 2


def test_release_gives_back_from_the_end_and_keeps_full_blocks_cached() -> None:
    bench = KVBench(num_blocks=8)
    seq = bench.run("a", PROMPT)
    bench.events()
    bench.release(seq)
    assert bench.events() == [
        "a lets go of 2, refs 0",
        "frees 2",
        "a lets go of 1, refs 0",
        "a lets go of 0, refs 0",
    ]
    assert bench.counts == (6, 0, 2)
    assert bench.blocks.num_available_blocks == 8
    assert bench.blocks.num_unwritten_slots == 0


def test_decode_takes_a_block_only_when_the_last_one_is_full() -> None:
    bench = KVBench(num_blocks=8)
    seq = bench.run("a", tokens(0, 3))
    needed = []
    for token in tokens(50, 6):
        seq.output_token_ids.append(token)
        needed.append((bench.blocks.blocks_needed(seq, 1), not bench.blocks.without_slot([seq])))
        bench.compute(seq)
    assert needed == [(0, True), (1, False), (0, True), (0, True), (0, True), (1, False)]
    assert seq.block_table == [0, 1, 2]


def test_max_new_tokens_is_the_most_that_needs_no_more_blocks() -> None:
    bench = KVBench(num_blocks=8)
    seq = bench.seq("a", tokens(0, 30))
    bench.admit(seq)
    bench.compute(seq, 6)
    for num_blocks in range(4):
        most = bench.blocks.max_new_tokens(seq, num_blocks)
        assert most == 2 + 4 * num_blocks
        assert bench.blocks.blocks_needed(seq, most) == num_blocks
        assert bench.blocks.blocks_needed(seq, most + 1) == num_blocks + 1


def test_generated_tokens_are_reused_by_the_next_turn() -> None:
    bench = KVBench(num_blocks=16)
    bench.release(bench.run("turn-1", PROMPT, outputs=tokens(50, 7)))
    bench.events()
    seq = bench.seq("turn-2", [*PROMPT, *tokens(50, 7), *tokens(90, 5)])
    assert bench.admit(seq) == 16  # all 17 tokens whose KV exists, in whole blocks
    assert seq.block_table == [0, 1, 2, 3]


def test_disabled_cache_publishes_and_matches_nothing() -> None:
    bench = KVBench(num_blocks=8, prefix_cache=False)
    bench.cache("a", PROMPT)
    assert bench.counts == (8, 0, 0)
    seq = bench.seq("b", PROMPT)
    assert bench.admit(seq) == 0


# --- matching and copy-on-write --------------------------------------------------------------------------------------


def test_siblings_in_flight_share_full_blocks() -> None:
    bench = KVBench(num_blocks=8)
    bench.run("a", PROMPT)
    bench.events()
    seq = bench.seq("b", [*tokens(0, 8), 70, 71])
    assert bench.admit(seq) == 8
    bench.compute(seq)
    assert bench.events() == [
        "b shares 0 at 0, refs 2",
        "b shares 1 at 1, refs 2",
        "b gets 3 at 2",
    ]
    assert bench.counts == (4, 4, 0)


def test_partly_matching_block_is_copied_and_the_source_let_go_with_the_copies() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", PROMPT)
    bench.events()
    seq = bench.seq("b", [*tokens(0, 7), 70, 71])
    bench.blocks.admit(seq, bench.blocks.match(seq))
    bench.live.append(seq)
    assert seq.num_computed_tokens == 7
    assert seq.block_table == [0, 2]
    assert bench.blocks.take_copies() == ((1, 2),)
    assert bench.events() == [
        "b shares 0 at 0, refs 1",
        "b shares 1 at 1, refs 1",
        "b gets 2 at 1",
        "b copies 3 of 1 to 2",
        "b lets go of 1, refs 0",
    ]
    assert bench.counts == (5, 2, 1)


@pytest.mark.parametrize(("num_prompt", "num_matched"), [(15, 14), (16, 15), (17, 16)])
def test_repeated_prompt_always_leaves_its_last_token_to_compute(num_prompt: int, num_matched: int) -> None:
    bench = KVBench(num_blocks=16)
    prompt = tokens(0, num_prompt)
    bench.cache("first", [*prompt, 99, 98, 97, 96])
    for number in range(4):
        seq = bench.seq(f"again-{number}", prompt)
        assert bench.admit(seq) == num_matched
        bench.compute(seq)
        bench.release(seq)
        bench.events()


@pytest.mark.parametrize(("num_prompt", "num_matched"), [(63, 48), (64, 63), (65, 64)])
def test_equal_prompt_around_a_block_boundary_finds_all_but_the_last_token_of_full_blocks(
    num_prompt: int, num_matched: int
) -> None:
    bench = KVBench(num_blocks=16, block_size=16)
    for number in range(4):
        seq = bench.seq(f"r{number}", tokens(0, num_prompt))
        assert bench.admit(seq) == (num_matched if number else 0)
        bench.compute(seq)
        bench.release(seq)
        bench.events()


def test_matched_blocks_are_held_before_the_same_admission_evicts() -> None:
    bench = KVBench(num_blocks=4)
    bench.cache("a", tokens(0, 8))
    bench.cache("b", tokens(20, 8))
    assert bench.counts == (0, 0, 4)
    bench.events()
    seq = bench.seq("c", [*tokens(0, 6), 60, 61, 62])  # a's first block shared, its second copied
    bench.admit(seq)
    bench.compute(seq)
    assert bench.events() == [
        "c shares 0 at 0, refs 1",
        "c shares 1 at 1, refs 1",
        "evicts 3: capacity",
        "frees 3",
        "c gets 3 at 1",
        "c copies 2 of 1 to 3",
        "evicts 2: capacity",
        "frees 2",
        "c gets 2 at 2",
        "c lets go of 1, refs 0",
        "c publishes 3 below 0",
    ]


def test_match_without_partial_needs_no_block_besides_the_source() -> None:
    bench = KVBench(num_blocks=4)
    prompt = tokens(0, 16)
    bench.cache("a", prompt)
    seq = bench.seq("b", prompt)
    match = bench.blocks.match(seq)
    assert (match.num_tokens, match.without_partial().num_tokens) == (15, 12)
    assert bench.blocks.blocks_to_admit(match, 16) == 5
    assert bench.blocks.blocks_to_admit(match.without_partial(), 16) == 4


def test_blocks_to_admit_counts_cached_blocks_that_become_unreachable_for_others() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 8))
    running = bench.run("b", [*tokens(0, 4), 50])
    seq = bench.seq("c", tokens(0, 12))
    match = bench.blocks.match(seq)
    assert match.blocks == [0, 1]
    assert bench.blocks.blocks_to_admit(match, 12) == 2  # one new, and block 1; block 0 is held by b anyway
    assert running.block_table[0] == 0


def test_prompt_logprobs_skip_the_match_but_share_what_they_compute() -> None:
    bench = KVBench(num_blocks=16)
    bench.cache("a", PROMPT)
    seq = bench.seq("b", PROMPT, prompt_logprobs=1)
    assert bench.admit(seq) == 0
    bench.blocks.explain(seq, bench.blocks.match(seq))
    assert bench.events()[-1] == "b finds 0 of 10: disabled"


# --- equal content at a time -----------------------------------------------------------------------------------------


def test_equal_blocks_computed_at_a_time_are_published_once_and_freed_with_their_owner() -> None:
    bench = KVBench(num_blocks=8)
    first, second = bench.seq("a", tokens(0, 9)), bench.seq("b", tokens(0, 9))
    bench.admit(first)
    bench.admit(second)
    bench.compute(first)
    bench.compute(second)
    bench.events()
    assert (first.block_table, second.block_table) == ([0, 1, 2], [3, 4, 5])
    bench.release(second)
    assert bench.counts == (5, 3, 0)
    bench.release(first)
    assert bench.counts == (6, 0, 2)


def test_what_follows_equal_blocks_is_published_when_its_owner_lets_go() -> None:
    bench = KVBench(num_blocks=8)
    first, second = bench.seq("a", tokens(0, 4)), bench.seq("b", [*tokens(0, 4), *tokens(60, 5)])
    bench.admit(first)
    bench.admit(second)
    bench.compute(first)
    bench.compute(second)
    bench.release(first)
    assert bench.counts == (4, 3, 1)
    bench.events()
    bench.release(second)
    assert bench.events()[0] == "b publishes 2 below 0"
    assert bench.counts == (6, 0, 2)


def test_next_block_of_a_match_is_known_to_be_computed_by_its_owner() -> None:
    bench = KVBench(num_blocks=16)
    owner = bench.seq("a", tokens(0, 10))
    bench.admit(owner)
    bench.compute(owner, 4)
    same, other, short = bench.seq("b", tokens(0, 9)), bench.seq("c", tokens(40, 9)), bench.seq("d", tokens(0, 7))
    being_computed_by = bench.blocks.being_computed_by
    assert being_computed_by(same, bench.blocks.match(same)) is owner
    assert being_computed_by(other, bench.blocks.match(other)) is None
    assert being_computed_by(short, bench.blocks.match(short)) is None
    bench.compute(owner, 4)
    assert being_computed_by(same, bench.blocks.match(same)) is None


def test_promised_blocks_are_withdrawn_with_their_owner() -> None:
    bench = KVBench(num_blocks=16)
    owner, same = bench.seq("a", tokens(0, 10)), bench.seq("b", tokens(0, 10))
    bench.admit(owner)
    bench.release(owner)
    assert bench.blocks.being_computed_by(same, bench.blocks.match(same)) is None


# --- forks -----------------------------------------------------------------------------------------------------------


def test_forks_share_everything_and_copy_the_tail_when_they_write_it() -> None:
    bench = KVBench(num_blocks=8)
    parent = bench.run("a", PROMPT)
    child = bench.seq("a", PROMPT, index=1)
    bench.events()
    bench.blocks.fork(parent, child)
    bench.live.append(child)
    assert bench.events() == [
        "a/1 shares 0 at 0, refs 2",
        "a/1 shares 1 at 1, refs 2",
        "a/1 shares 2 at 2, refs 2",
    ]
    for seq, token in ((parent, 50), (child, 60)):
        seq.output_token_ids.append(token)
    assert [bench.blocks.blocks_needed(seq, 1) for seq in (parent, child)] == [1, 1]
    bench.blocks.allocate(parent, 1)
    assert [bench.blocks.blocks_needed(seq, 1) for seq in (parent, child)] == [0, 0]
    bench.blocks.allocate(child, 1)
    assert bench.blocks.take_copies() == ((2, 3),)
    assert (parent.block_table, child.block_table) == ([0, 1, 3], [0, 1, 2])
    assert bench.events() == ["a gets 3 at 2", "a copies 2 of 2 to 3", "a lets go of 2, refs 1"]


def test_full_blocks_of_a_fork_need_no_copy() -> None:
    bench = KVBench(num_blocks=8)
    parent = bench.run("a", tokens(0, 8))
    child = bench.seq("a", tokens(0, 8), index=1)
    bench.blocks.fork(parent, child)
    bench.live.append(child)
    for seq, token in ((parent, 50), (child, 60)):
        seq.output_token_ids.append(token)
        bench.compute(seq)
    assert (parent.block_table, child.block_table) == ([0, 1, 2], [0, 1, 3])
    bench.events()


def test_source_of_a_planned_copy_is_not_handed_out_before_the_copy() -> None:
    bench = KVBench(num_blocks=4)
    parent = bench.run("a", PROMPT)
    child = bench.seq("a", PROMPT, index=1)
    bench.blocks.fork(parent, child)
    for seq, token in ((parent, 50), (child, 60)):
        seq.output_token_ids.append(token)
    bench.blocks.allocate(parent, 1)
    bench.blocks.release(child)
    assert bench.blocks.num_available_blocks == 0  # block 2 is read by the copy
    assert bench.blocks.take_copies() == ((2, 3),)
    assert bench.counts == (1, 3, 0)
    assert bench.events()[-1] == "frees 2"


def test_copy_of_a_sequence_that_gives_way_is_dropped() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", PROMPT)
    seq = bench.seq("b", [*tokens(0, 7), 70, 71])
    bench.blocks.admit(seq, bench.blocks.match(seq))
    bench.blocks.release(seq)
    assert bench.blocks.take_copies() == ()
    assert bench.counts == (6, 0, 2)
    bench.events()


def test_fork_publishes_shared_blocks_once() -> None:
    bench = KVBench(num_blocks=12)
    twin = bench.seq("twin", tokens(0, 8))
    parent = bench.seq("a", tokens(0, 8))
    bench.admit(twin)
    bench.admit(parent)
    bench.compute(twin)
    bench.compute(parent)  # equal content: stays unpublished
    child = bench.seq("a", tokens(0, 8), index=1)
    bench.blocks.fork(parent, child)
    bench.live.append(child)
    bench.release(twin)
    assert bench.blocks.reset_prefix_cache() == 2
    bench.release(parent)
    bench.release(child)
    assert bench.counts == (12, 0, 0)
    bench.events()


# --- faults and clearing ---------------------------------------------------------------------------------------------


def test_faulty_sequence_leaves_nothing_in_the_cache() -> None:
    bench = KVBench(num_blocks=8)
    seq = bench.run("a", PROMPT)
    bench.events()
    bench.release(seq, is_faulty=True)
    assert bench.counts == (8, 0, 0)
    assert bench.events() == [
        "a lets go of 2, refs 0",
        "frees 2",
        "a lets go of 1, refs 0",
        "a lets go of 0, refs 0",
        "evicts 1: fault",
        "frees 1",
        "evicts 0: fault",
        "frees 0",
    ]


def test_faulty_sequence_leaves_what_it_found_in_the_cache() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 8))
    seq = bench.run("b", [*tokens(0, 8), *tokens(60, 5)])
    bench.release(seq, is_faulty=True)
    assert bench.counts == (6, 0, 2)
    bench.events()


def test_reset_frees_cached_blocks_and_leaves_used_ones_unpublished() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(20, 4))
    seq = bench.run("b", PROMPT)
    bench.events()
    assert bench.blocks.reset_prefix_cache() == 3
    assert bench.events() == ["evicts 0: reset", "frees 0", "clears 3"]
    assert bench.counts == (5, 3, 0)
    seq.output_token_ids.extend(tokens(50, 3))
    bench.compute(seq)
    bench.release(seq)
    assert bench.counts == (8, 0, 0)
    assert not [line for line in bench.events() if "publishes" in line]


def test_reset_of_an_empty_cache_returns_zero() -> None:
    bench = KVBench(num_blocks=2)
    assert bench.blocks.reset_prefix_cache() == 0
    assert bench.events() == ["clears 0"]


def test_table_of_a_collision_prone_hash_is_not_consulted_for_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.kv.publishing.chain_hash", lambda parent_hash, token_ids: f"{sum(token_ids) % 8}")
    bench = KVBench(num_blocks=256)
    prompts = [[n, n + 1, *tokens(100 * n, 10), 7] for n in range(50)]
    for number, prompt in enumerate(prompts):
        seq = bench.seq(f"r{number}", prompt)
        assert bench.admit(seq) == 0
        bench.compute(seq)
        bench.release(seq)
    for number, prompt in enumerate(prompts):
        seq = bench.seq(f"again-{number}", prompt)
        assert bench.admit(seq) == 12
        bench.compute(seq)
        bench.release(seq)


def test_evicted_prompt_misses_and_its_blocks_hold_the_next_one() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 16))
    bench.cache("b", tokens(100, 32))
    again = bench.seq("a-again", tokens(0, 16))
    assert bench.admit(again) == 0
    bench.compute(again)
    bench.release(again)
    assert bench.counts == (0, 0, 8)
    bench.events()


def test_published_hashes_chain_and_depend_on_salt_and_parent() -> None:
    published: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for salt, prompt in (("", tokens(0, 8)), ("x", tokens(0, 8)), ("", [9, *tokens(1, 7)])):
        bench = KVBench(num_blocks=8)
        bench.run("a", prompt, salt=salt)
        hashes = [(event.parent_hash, event.block_hash) for event in bench.published()]
        assert [parent for parent, _ in hashes[1:]] == [own for _, own in hashes[:-1]]
        published[salt, tuple(prompt)] = [own for _, own in hashes]
    assert len({own for hashes in published.values() for own in hashes}) == 6
    assert all(len(own) == 32 for hashes in published.values() for own in hashes)


def test_unwritten_slots_are_the_sum_over_running_sequences() -> None:
    bench = KVBench(num_blocks=16)
    waste = []
    sequences = [bench.run(name, tokens(10 * i, 3 + i)) for i, name in enumerate("abc")]
    for seq in sequences:
        waste.append(bench.blocks.num_unwritten_slots)
        bench.release(seq)
    assert [before - after for before, after in pairwise([*waste, 0])] == [1, 0, 3]
    bench.events()
