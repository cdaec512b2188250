"""Which rows attend to which blocks in one step: index tensors built once a step and used by every layer."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.execution.forward_batch import ForwardBatch, Int64Array

MAX_QUERY_TILE = 128  # bounds the score matrix of a prefill chunk, and skips keys that lie wholly in the future
SAME_GROUP_TOKENS = 256  # sequences up to this length always share a group; beyond it, within a factor of two
MAX_CHUNK_ROWS = 1024  # query rows of prefill chunks in one group


@dataclass(frozen=True, slots=True)
class QueryTile:
    """Queries start..stop-1 of every sequence of a group, which see at most the first `num_keys` gathered keys.

    Attributes:
        hidden: bool [num_seqs, stop - start, 1, num_keys], true where a key must not be seen.
    """

    start: int
    stop: int
    num_keys: int
    hidden: torch.Tensor


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Sequences with equally many new tokens, attended to together.

    Attributes:
        rows: int64 [num_seqs * query_len], token rows of the batch, sequence by sequence.
        num_seqs, query_len, num_keys: num_keys is the padded number of keys gathered for each sequence.
        block_rows: int64 [num_kv_heads * num_seqs * num_keys / block_size], rows of the cache (paged_cache.py).
        stale: int64 [num_stale], places in [num_seqs * num_keys] that hold nothing of the sequence. Their weight is
            zero, but what lies there may be another sequence's NaN, and 0 * NaN is NaN: the values are zeroed.
        tiles: partition of 0..query_len-1.
    """

    rows: torch.Tensor
    num_seqs: int
    query_len: int
    num_keys: int
    block_rows: torch.Tensor
    stale: torch.Tensor
    tiles: tuple[QueryTile, ...]


def plan_attention(
    batch: ForwardBatch,
    *,
    num_kv_heads: int,
    num_blocks: int,
    block_size: int,
    key_alignment: int,
    device: torch.device,
) -> list[AttentionGroup]:
    """Group the batch's sequences: decodes of similar length together, likewise chunks of the same length.

    Args:
        key_alignment: the padded number of keys is a multiple of it; itself a multiple of block_size.
    """
    groups = []
    for members in _similar(batch):
        query_len = int(batch.query_start[members[0] + 1] - batch.query_start[members[0]])
        lengths = batch.seq_lens[members].astype(np.int64)
        num_keys = -(-int(lengths.max()) // key_alignment) * key_alignment
        table = np.zeros((len(members), num_keys // block_size), dtype=np.int64)
        used = min(batch.block_tables.shape[1], table.shape[1])
        table[:, :used] = batch.block_tables[members, :used]
        heads = np.arange(num_kv_heads, dtype=np.int64)[:, None, None] * num_blocks
        stale = np.arange(num_keys) >= lengths[:, None]
        rows = batch.query_start[members].astype(np.int64)[:, None] + np.arange(query_len)
        groups.append(
            AttentionGroup(
                rows=torch.from_numpy(rows.ravel()).to(device),
                num_seqs=len(members),
                query_len=query_len,
                num_keys=num_keys,
                block_rows=torch.from_numpy((heads + table).ravel()).to(device),
                stale=torch.from_numpy(np.flatnonzero(stale)).to(device),
                tiles=tuple(_tiles(lengths, query_len, key_alignment, device)),
            )
        )
    return groups


def _similar(batch: ForwardBatch) -> Iterator[Int64Array]:
    """Yield the indices of sequences that are attended to together: equal query length, similar total length."""
    query_lens = np.diff(batch.query_start)
    for query_len in np.unique(query_lens):
        members = np.flatnonzero(query_lens == query_len)
        members = members[np.argsort(batch.seq_lens[members], kind="stable")]
        lengths = batch.seq_lens[members]
        most = len(members) if query_len == 1 else max(1, MAX_CHUNK_ROWS // int(query_len))
        start = 0
        while start < len(members):
            limit = max(SAME_GROUP_TOKENS, 2 * int(lengths[start]))
            stop = min(int(np.searchsorted(lengths, limit, side="right")), start + most)
            yield np.sort(members[start:stop])
            start = stop


def _tiles(lengths: Int64Array, query_len: int, key_alignment: int, device: torch.device) -> Iterator[QueryTile]:
    first = lengths - query_len  # position of each sequence's first new token
    for start in range(0, query_len, MAX_QUERY_TILE):
        stop = min(start + MAX_QUERY_TILE, query_len)
        num_keys = -(-int((first + stop).max()) // key_alignment) * key_alignment
        positions = first[:, None] + np.arange(start, stop)
        hidden = np.arange(num_keys) > positions[:, :, None]
        yield QueryTile(
            start=start, stop=stop, num_keys=num_keys, hidden=torch.from_numpy(hidden[:, :, None]).to(device)
        )
