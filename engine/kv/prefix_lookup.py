"""Why a prompt found no more in the prefix tree than it did: the explanation behind every lookup."""

from collections import OrderedDict
from dataclasses import dataclass

from engine.kv.prefix_tree import Divergence, PartialBlock


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
