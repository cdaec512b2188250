"""What one step will do: who gets how many tokens, which blocks are copied first."""

import enum
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import msgspec

from engine.sequence import Sequence


class BlockedOn(enum.Enum):
    """Why the head of the waiting queue was not admitted in a step."""

    NOTHING = ""  # the queue is empty, or its head was admitted
    KV_BLOCKS = "kv_blocks"
    TOKEN_BUDGET = "token_budget"
    MAX_NUM_SEQS = "max_num_seqs"
    SHARED_PREFIX = "shared_prefix"  # an older request is computing the very block that it needs next


class ScheduledSequence(msgspec.Struct, frozen=True, gc=False):
    """One sequence's share of a step: tokens start..start+num_tokens-1 of prompt + output.

    A struct, for a frozen dataclass takes five times as long to make, and a step makes one per sequence.

    Attributes:
        seq: whose; read-only for everyone but the scheduler.
        start: position of the first token computed (= seq.num_computed_tokens at schedule time).
        num_tokens: how many, >= 1.
        is_decode: whether this is the one-token step of a sequence past its prefill.
        needs_sample: whether the last token's logits are sampled (start + num_tokens == seq.num_tokens).
        num_recomputed: of num_tokens, those whose KV had been written before a preemption.
    """

    seq: Sequence
    start: int
    num_tokens: int
    is_decode: bool
    needs_sample: bool
    num_recomputed: int = 0

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether this share covers prompt positions whose logits are reported."""
        return self.seq.params.prompt_logprobs >= 0 and self.start < self.seq.num_prompt_tokens


@dataclass(frozen=True)
class Schedule:
    """One step's plan. Entries are in execution order: decodes first, then prefill chunks.

    Attributes:
        entries: the sequences computed in this step, each at most once.
        block_copies: (source, destination) physical blocks, done before any KV is written in the step.
        blocked_on: why the head of the queue still waits.
    """

    entries: tuple[ScheduledSequence, ...]
    block_copies: tuple[tuple[int, int], ...] = ()
    blocked_on: BlockedOn = BlockedOn.NOTHING

    @cached_property
    def num_decodes(self) -> int:
        """How many entries, the first ones, are decodes."""
        return bisect_left(self.entries, True, key=_is_chunk)

    @property
    def chunks(self) -> tuple[ScheduledSequence, ...]:
        """The entries behind the decodes."""
        return self.entries[self.num_decodes :]

    @property
    def num_tokens(self) -> int:
        return self.num_decodes + self.num_prefill_tokens

    @property
    def num_prefill_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.chunks)


def _is_chunk(entry: ScheduledSequence) -> bool:
    return not entry.is_decode
