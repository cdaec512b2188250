"""Whether there is room for one more: the blocks that an admission takes, and those that must stay for others."""

from collections.abc import Mapping

from engine.config import SchedulerConfig
from engine.kv.block_manager import BlockManager
from engine.kv.prefix_lookup import PrefixMatch
from engine.preemption import ShortagePolicy
from engine.request_ledger import RequestRecord
from engine.running_set import RunningSet
from engine.sequence import Sequence
from engine.step_plan import StepPlan


class AdmissionRoom:
    """Does the sums of an admission; changes nothing.

    Args:
        config: the token budget.
        blocks, policy, running, records: the scheduler's own.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        blocks: BlockManager,
        policy: ShortagePolicy,
        running: RunningSet,
        records: Mapping[str, RequestRecord],
    ) -> None:
        self._budget = config.max_num_batched_tokens
        self._blocks = blocks
        self._policy = policy
        self._running = running
        self._records = records

    def shortfall(self, seq: Sequence, match: PrefixMatch, plan: StepPlan) -> int:
        """Return how many blocks are missing to admit a sequence with a match; none if it is 0 or less.

        It must have room for all tokens it has and the next one, and leave what the policy reserves for the others.
        With nobody running it needs room for itself alone, which the empty pool has.
        """
        blocks = self._blocks
        missing = blocks.blocks_to_admit(match, seq.num_tokens + 1) - self._policy.num_available(blocks)
        if not self._running:
            return missing
        missing += self._records[seq.request_id].num_unborn
        if self._needs_guarantee(seq):
            missing -= blocks.num_blocks_for(seq.num_tokens + 1)
            return missing + sum(self._blocks_to_the_end(other) for other in (seq, *self._running))
        num_seats = self._running.num_seats
        return missing + self._policy.headroom(
            seq,
            num_owed=sum(
                blocks.blocks_needed(other, other.num_tokens - other.num_computed_tokens) for other in plan.incomplete()
            ),
            num_growing=num_seats,
            num_steps=-(-(seq.num_tokens - match.num_tokens) // max(1, self._budget - num_seats)),
            block_size=blocks.block_size,
        )

    def _needs_guarantee(self, seq: Sequence) -> bool:
        """Tell whether the admission must leave room for everybody's whole length."""
        is_guaranteed = self._policy.is_guaranteed
        return is_guaranteed(seq) or (self._running.num_resumed > 0 and any(map(is_guaranteed, self._running)))

    def _blocks_to_the_end(self, seq: Sequence) -> int:
        """Return how many more blocks a sequence, with all choices that it will fork, can ever take."""
        blocks, record = self._blocks, self._records[seq.request_id]
        num_prompt = seq.num_prompt_tokens
        at_end = blocks.num_blocks_for(num_prompt + seq.max_output_tokens)
        of_forks = record.num_unborn * (at_end - num_prompt // blocks.block_size)
        of_shared_tail = 1 if record.request.params.n > 1 else 0
        return at_end + of_forks + of_shared_tail - len(seq.block_table)
