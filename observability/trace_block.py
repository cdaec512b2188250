"""One block and its holders, as a trace describes them."""

from dataclasses import dataclass, field

Choice = tuple[str, int]
"""A request id and which of its choices: the owner of a block table."""

ROOT_BLOCK_ID = -1


class InvariantError(Exception):
    """An event contradicts what the events before it established; the message has the numbers."""


@dataclass(slots=True)
class Block:
    """One block as the events describe it.

    Attributes:
        known: False until an event has said where it is (only in traces that start in the middle).
        free: on the free list.
        holders: each choice whose table holds it.
        published: in the prefix tree, below `parent`, with `num_children` published blocks below it.
        block_hash: of the published content.
        counted_as: the place under which the pool's counts have it.
    """

    known: bool = True
    free: bool = True
    holders: set[Choice] = field(default_factory=set)
    published: bool = False
    parent: int = ROOT_BLOCK_ID
    block_hash: str = ""
    num_children: int = 0
    counted_as: str = "free"

    @property
    def place(self) -> str:
        """Return `unknown`, `free`, `referenced`, `cached`, or `lost` (nobody holds it and it isn't free)."""
        if not self.known:
            return "unknown"
        if self.free:
            return "free"
        if self.holders:
            return "referenced"
        return "cached" if self.published else "lost"


def name_of(choice: Choice) -> str:
    """Return how messages name a choice."""
    return f"choice {choice[1]} of request {choice[0]!r}"
