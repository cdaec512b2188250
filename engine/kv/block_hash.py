"""Names of block contents for outside indexers: a hash over everything that the block's KV depends on."""

import hashlib
import struct
from collections.abc import Collection


def root_hash(salt: str) -> str:
    """Return the hash that the first block of a salt is chained to."""
    return hashlib.blake2b(salt.encode(), digest_size=16).hexdigest()


def chain_hash(parent_hash: str, token_ids: Collection[int]) -> str:
    """Return the hash of a block: of its parent's hash and its token ids, each as 8 bytes, least significant first."""
    packed = struct.pack(f"<{len(token_ids)}q", *token_ids)
    return hashlib.blake2b(parent_hash.encode() + packed, digest_size=16).hexdigest()
