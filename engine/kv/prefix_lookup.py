"""Why a prompt found no more in the prefix tree than it did: the explanation behind every lookup."""

from collections import OrderedDict
from dataclasses import dataclass

from engine.events import EventSink, PrefixLookup
from engine.kv.prefix_tree import Divergence, PartialBlock, PrefixTree
from engine.kv.publishing import Publisher
from engine.sequence import Sequence


class EvictedPrefixes:
    """The hashes of blocks that left the tree last, oldest forgotten first.

    Args:
        capacity: how many are remembered.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._hashes: OrderedDict[str, None] = OrderedDict()  # a dict would search its gaps for its first key

    def __contains__(self, block_hash: str) -> bool:
        return block_hash in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, block_hash: str) -> None:
        hashes = self._hashes
        if block_hash in hashes:
            hashes.move_to_end(block_hash)
            return
        hashes[block_hash] = None
        if len(hashes) > self._capacity:
            hashes.popitem(last=False)


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """What a sequence can take over from the prefix tree.

    Attributes:
        blocks: full blocks to share, in order.
        num_tokens: tokens covered, `partial` included; at least one token is always left to compute.
        partial: a block to copy because only its beginning matches.
        divergence: where the tree holds something else.
        is_disabled: the tree wasn't asked.
    """

    blocks: list[int]
    num_tokens: int
    partial: PartialBlock | None = None
    divergence: Divergence | None = None
    is_disabled: bool = False

    def without_partial(self) -> "PrefixMatch":
        """Return the match without the block that would have to be copied."""
        if self.partial is None:
            return self
        return PrefixMatch(self.blocks, self.num_tokens - self.partial.num_tokens, None, self.divergence)


NO_PREFIX_CACHE = PrefixMatch([], 0, is_disabled=True)


class Explainer:
    """Says of every lookup how much it found, and why not more.

    Args:
        tree, evicted, publisher: the block manager's own; nothing in them is changed.
        block_size: tokens per block.
        events: where prefix_lookup is said.
    """

    def __init__(
        self, tree: PrefixTree, evicted: EvictedPrefixes, publisher: Publisher, *, block_size: int, events: EventSink
    ) -> None:
        self._tree = tree
        self._evicted = evicted
        self._publisher = publisher
        self._block_size = block_size
        self._events = events

    def explain(self, seq: Sequence, match: PrefixMatch) -> None:
        """Emit prefix_lookup."""
        divergence = match.divergence
        why = self._why(seq, match)
        fields: dict[str, object] = {}
        if divergence is not None and why == "diverged":
            fields = {
                "position": divergence.position,
                "block_id": divergence.block_id,
                "expected_token": divergence.expected_token,
                "actual_token": divergence.actual_token,
            }
        self._events.emit(
            PrefixLookup,
            request_id=seq.request_id,
            index=seq.index,
            num_prompt_tokens=seq.num_prompt_tokens,
            num_matched_tokens=match.num_tokens,
            why=why,
            **fields,
        )

    def _why(self, seq: Sequence, match: PrefixMatch) -> str:
        if match.is_disabled:
            return "disabled"
        size, num_prompt = self._block_size, seq.num_prompt_tokens
        number, salt = len(match.blocks), seq.request.cache_salt
        if match.num_tokens >= num_prompt - 1:
            return "tail"
        if (number + 1) * size <= num_prompt:
            tokens = tuple(seq.token_ids(number * size, (number + 1) * size))
            if self._publisher.hash_after(match.blocks, seq, number) in self._evicted:
                return "evicted"
            if not number and self._tree.is_under_another_salt(salt, tokens):
                return "salt"
        if match.num_tokens and match.divergence is not None:
            return "diverged"
        if number == num_prompt // size:
            return "tail"
        return "" if match.num_tokens else "cold"
