"""Faults put in on purpose: the harness that proves the engine must see each of them.

Every mutant is the real class with one thing wrong. It is run through the same workload, and the test fails if the
workload doesn't. Where a mutant is caught says which instrument is needed for it: the shadow KV (a wrong slot is
read), the trace checker (an event contradicts the pool), or an assertion of the bookkeeping itself.
"""

from collections.abc import Callable
from collections.abc import Sequence as Many
from functools import partial
from unittest.mock import Mock

import msgspec
import pytest

from engine.departures import Departures
from engine.events import BlockEvicted, RequestAborted
from engine.execution.executor import SampledToken, SamplingRow
from engine.execution.shadow_kv import ShadowKVError
from engine.kv.block_manager import BlockManager
from engine.kv.block_pool import BlockPool
from engine.kv.prefix_lookup import PrefixMatch
from engine.kv.prefix_tree import PrefixTree, TreeMatch
from engine.messages import ChoiceOutput
from engine.schedule import Schedule
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from tests.support.workload import run_workload

SEEDS = range(3)


def run_seeds(workload: Callable[..., object]) -> None:
    for seed in SEEDS:
        workload(seed=seed)


def test_workload_without_a_mutant_passes_and_meets_every_path() -> None:
    for seed in SEEDS:
        report = run_workload(seed=seed)
        assert report.num_preemptions >= 5, report.to_text()
        assert report.num_ended["aborted"] >= 1
        assert report.num_kv_events["block_copied"] >= 20
        assert report.num_kv_events["block_evicted"] >= 50
        assert report.num_kv_events["block_shared"] >= 100


class LeakingPool(BlockPool):
    """Forgets to take back every tenth block."""

    num_given_back = 0

    def give_back(self, block_id: int) -> None:
        self.num_given_back += 1
        if self.num_given_back % 10 or not self.num_free:
            super().give_back(block_id)


class DoubleFreeingPool(BlockPool):
    """Puts every tenth block on the free list twice."""

    num_given_back = 0

    def give_back(self, block_id: int) -> None:
        super().give_back(block_id)
        self.num_given_back += 1
        if not self.num_given_back % 10:
            self._free.append(block_id)


class MiscountingPool(BlockPool):
    """Forgets every tenth reference."""

    num_acquired = 0

    def acquire(self, block_id: int) -> int:
        self.num_acquired += 1
        count = super().acquire(block_id)
        if not self.num_acquired % 10 and count > 1:
            count = self.release(block_id)
        return count


class EvictsInUseTree(PrefixTree):
    """Believes that nothing is referenced."""

    def __init__(self, *, block_size: int, ref_counts: list[int]) -> None:
        super().__init__(block_size=block_size, ref_counts=[0] * len(ref_counts))


class TruncatedHashTree(PrefixTree):
    """Takes two blocks for equal when their first tokens' last three bits are."""

    def match(self, salt: str, token_ids: list[int]) -> TreeMatch:
        found = super().match(salt, token_ids)
        size = self._block_size
        place = len(found.blocks) * size
        if not found.blocks and len(token_ids) > size:
            for _, depth, tokens, blocks in self.runs():
                if depth == 0 and tokens[0] & 7 == token_ids[place] & 7:
                    return TreeMatch([blocks[0]])
        return found


class MatchesOneTooMany(PrefixTree):
    """Takes the token after a partly matching block for matched too."""

    def match(self, salt: str, token_ids: list[int]) -> TreeMatch:
        found = super().match(salt, token_ids)
        partial = found.partial
        if partial is None or len(found.blocks) * self._block_size + partial.num_tokens >= len(token_ids):
            return found
        return TreeMatch(found.blocks, type(partial)(partial.block_id, partial.num_tokens + 1), found.divergence)


class PublishesBeforeComputing(BlockManager):
    """Publishes the blocks of a chunk as soon as they are allocated."""

    def allocate(self, seq: Sequence, num_new_tokens: int) -> None:
        super().allocate(seq, num_new_tokens)
        seq.num_computed_tokens += num_new_tokens
        self.publish(seq)
        seq.num_computed_tokens -= num_new_tokens


class KeepsStaleEntries(BlockManager):
    """Frees a cached block and leaves it in the prefix tree."""

    num_kept = 0

    def _evict(self) -> None:
        self.num_kept += 1
        if self.num_kept % 3:
            return super()._evict()
        for _, _, _, blocks in self._tree.runs():
            if not self._ref_counts[blocks[-1]] and self._tree.is_last(blocks[-1]):
                self._num_cached -= 1
                self._events.emit(BlockEvicted, block_id=blocks[-1], reason="capacity")
                return self._free(blocks[-1])
        return super()._evict()


class SkipsCopies(BlockManager):
    """Never copies on write."""

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        super().take_copies()
        return ()


class WritesIntoSharedTails(BlockManager):
    """Lets a fork go on in the block that it shares, without a copy."""

    def blocks_needed(self, seq: Sequence, num_new_tokens: int) -> int:
        end = -(-(seq.num_computed_tokens + num_new_tokens) // self.block_size)
        return max(0, end - len(seq.block_table))

    def allocate(self, seq: Sequence, num_new_tokens: int) -> None:
        counts = self._pool.ref_counts
        first = seq.num_computed_tokens // self.block_size
        if first < len(seq.block_table) and counts[seq.block_table[first]] > 1:
            block_id = seq.block_table[first]
            held, counts[block_id] = counts[block_id], 1
            super().allocate(seq, num_new_tokens)
            counts[block_id] = held
        else:
            super().allocate(seq, num_new_tokens)


class MatchesTheLastToken(BlockManager):
    """Counts a token more as cached than was found."""

    def admit(self, seq: Sequence, match: PrefixMatch) -> None:
        super().admit(seq, match)
        if match.blocks and match.partial is None and seq.num_computed_tokens % self.block_size == 0:
            seq.num_computed_tokens -= 1


class KeepsABlock(BlockManager):
    """Lets go of all blocks of a table but the first."""

    def release(self, seq: Sequence, *, is_faulty: bool = False) -> None:
        kept = seq.block_table[0]
        self._pool.acquire(kept)
        super().release(seq, is_faulty=is_faulty)


class ReversesPrefixes(BlockManager):
    """Shares the blocks of a prefix in the wrong order."""

    def admit(self, seq: Sequence, match: PrefixMatch) -> None:
        super().admit(
            seq, PrefixMatch(match.blocks[::-1], match.num_tokens, match.partial, match.divergence, match.is_disabled)
        )


SHADOW = ShadowKVError
TRACE = AssertionError
Mutant = type[BlockPool] | type[PrefixTree] | type[BlockManager]

KV_MUTANTS: dict[str, tuple[Mutant, type[AssertionError], str]] = {
    "leaks a block": (LeakingPool, TRACE, "BROKEN .* step says"),
    "frees a block twice": (DoubleFreeingPool, TRACE, "BROKEN"),
    "loses a reference": (MiscountingPool, TRACE, "BROKEN .* ref_count"),
    "evicts a block in use": (EvictsInUseTree, TRACE, "BROKEN .* evicted while it is referenced"),
    "matches by a truncated hash": (TruncatedHashTree, SHADOW, "prefix of another sequence"),
    "keeps an evicted block in the tree": (KeepsStaleEntries, TRACE, "BROKEN|free|freed"),
    "matches a token too many": (MatchesOneTooMany, SHADOW, "another"),
    "publishes before it computes": (PublishesBeforeComputing, TRACE, "BROKEN .* before it is written"),
    "skips the copy on write": (SkipsCopies, SHADOW, "."),
    "writes into a shared tail": (WritesIntoSharedTails, SHADOW, "write the same slot|sees|another"),
    "computes a token less than it matched": (MatchesTheLastToken, TRACE, "."),
    "keeps a block of every table": (KeepsABlock, TRACE, "BROKEN .* ref_count"),
    "shares a prefix in the wrong order": (ReversesPrefixes, SHADOW, "holds a token of position"),
}


@pytest.mark.parametrize("name", KV_MUTANTS)
def test_kv_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, error, message = KV_MUTANTS[name]
    if issubclass(mutant, BlockManager):
        workload = partial(run_workload, blocks_class=mutant)
    else:
        monkeypatch.setattr(f"engine.kv.block_manager.{mutant.__mro__[1].__name__}", mutant)
        workload = run_workload
    with pytest.raises(error, match=message):
        run_seeds(workload)


# --- the scheduler -----------------------------------------------------------------------------------------------


class ForgetsTheBudget(Scheduler):
    """Plans twice the tokens that a step may have."""

    def schedule(self) -> Schedule:
        config = self.config
        self.config = msgspec.structs.replace(config, max_num_batched_tokens=config.max_num_batched_tokens * 2)
        schedule = super().schedule()
        self.config = config
        return schedule


class EndsTwice(Scheduler):
    """Says of an aborted request that it ended, a second time."""

    def abort(self, request_id: str, reason: str) -> list[ChoiceOutput]:
        outputs = super().abort(request_id, reason)
        if outputs:
            self._events.emit(RequestAborted, request_id=request_id, reason=reason, num_output_tokens=0)
        return outputs


class LosesAborted(Scheduler):
    """Forgets an aborted request without a word."""

    def abort(self, request_id: str, reason: str) -> list[ChoiceOutput]:
        record = self._records.get(request_id)
        if record is not None:
            self._departures.withdraw(record)
            del self._records[request_id]
        return []


class KeepsBlocksOfAborted(Scheduler):
    """Ends an aborted request, but doesn't take its blocks back."""

    def abort(self, request_id: str, reason: str) -> list[ChoiceOutput]:
        departures = self._departures
        self._departures = Departures(self._waiting, self._running, Mock(), self._ledger)
        outputs = super().abort(request_id, reason)
        self._departures = departures
        return outputs


class SwapsResults(Scheduler):
    """Hands the first row's token to the second row and the other way round."""

    def update(self, schedule: Schedule, rows: Many[SamplingRow], sampled: Many[SampledToken]) -> list[ChoiceOutput]:
        if len(sampled) > 1:
            sampled = [sampled[1], sampled[0], *sampled[2:]]
        return super().update(schedule, rows, sampled)


SCHEDULER_MUTANTS: dict[str, tuple[type[Scheduler], type[AssertionError], str]] = {
    "plans more than the budget": (ForgetsTheBudget, TRACE, "BROKEN .* its budget is 24"),
    "ends a request twice": (EndsTwice, TRACE, "BROKEN .* after it ended with `aborted`"),
    "loses an aborted request": (LosesAborted, TRACE, "in flight"),
    "keeps the blocks of an aborted request": (KeepsBlocksOfAborted, TRACE, "BROKEN .* still holds blocks"),
    "swaps two sequences' tokens": (SwapsResults, TRACE, "."),
}


@pytest.mark.parametrize("name", SCHEDULER_MUTANTS)
def test_scheduler_mutant_is_caught(name: str) -> None:
    mutant, error, message = SCHEDULER_MUTANTS[name]
    with pytest.raises(error, match=message):
        run_seeds(partial(run_workload, scheduler_class=mutant))
