"""Which blocks are about to be published, and by whom: so that equal prompts are computed once."""

from collections.abc import Iterable

from engine.sequence import Sequence


class Promises:
    """Maps hashes of blocks that running sequences are going to publish to the first that said so.

    A promise ends when the block is published by anybody, or when its owner lets go of its blocks or can't publish any
    more. A hash that collides makes somebody wait for nothing, until the owner is done; it never shares anything.
    """

    def __init__(self) -> None:
        self._owners: dict[str, Sequence] = {}
        self._hashes: dict[Sequence, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._owners)

    @property
    def owners(self) -> set[Sequence]:
        """Everybody who has a promise open."""
        return set(self._owners.values())

    def owner(self, block_hash: str) -> Sequence | None:
        return self._owners.get(block_hash)

    def make(self, seq: Sequence, block_hashes: Iterable[str]) -> None:
        """Note what `seq` will publish; what somebody else has promised stays with that one."""
        own = [block_hash for block_hash in block_hashes if self._owners.setdefault(block_hash, seq) is seq]
        if own:
            self._hashes[seq] = own

    def fulfil(self, block_hash: str) -> None:
        """Note that a block is published."""
        self._owners.pop(block_hash, None)

    def withdraw(self, seq: Sequence) -> None:
        """Forget what `seq` has promised and not kept."""
        for block_hash in self._hashes.pop(seq, ()):
            if self._owners.get(block_hash) is seq:
                del self._owners[block_hash]
