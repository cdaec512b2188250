"""Names of block contents for outside indexers: a hash over everything that the block's KV depends on."""

import struct
from collections.abc import Collection
from functools import cache
from hashlib import blake2b


def root_hash(salt: str) -> str:
    """Return the hash that the first block of a salt is chained to."""
    return blake2b(salt.encode(), digest_size=16).hexdigest()


def chain_hash(parent_hash: str, token_ids: Collection[int]) -> str:
    """Return the hash of a block: of its parent's hash and its token ids, each as 8 bytes, least significant first."""
    packed = _packing(len(token_ids)).pack(*token_ids)
    return blake2b(parent_hash.encode() + packed, digest_size=16).hexdigest()


@cache
def _packing(num_tokens: int) -> struct.Struct:
    return struct.Struct(f"<{num_tokens}q")
