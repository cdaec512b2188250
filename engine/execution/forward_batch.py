"""One step's input to an executor: every scheduled token of every sequence, flat and ragged."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.schedule import Schedule

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The ragged batch of one forward pass; prefill chunks and decodes alike.

    Attributes:
        token_ids: int64 [num_tokens].
        positions: int64 [num_tokens], position of each token in its sequence.
        slot_mapping: int64 [num_tokens], where the token's K and V go: block_id * block_size + offset.
        query_start: int32 [num_seqs + 1], cumulative token counts.
        seq_lens: int32 [num_seqs], tokens visible to attention after this step (computed before + this step's).
        block_tables: int32 [num_seqs, max_blocks], physical blocks, padded with 0.
        logits_rows: int64 [num_logits], the token rows that need logits, ascending.
        block_copies: int64 [num_copies, 2], (source, destination), done before any KV is written.
    """

    token_ids: Int64Array
    positions: Int64Array
    slot_mapping: Int64Array
    query_start: Int32Array
    seq_lens: Int32Array
    block_tables: Int32Array
    logits_rows: Int64Array
    block_copies: Int64Array

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_seqs(self) -> int:
        return len(self.seq_lens)


@dataclass(frozen=True, slots=True)
class LogitsRow:
    """What one row of the logits is for.

    Attributes:
        entry: index into the schedule's entries.
        position: the token row's position p in the sequence; its logits predict token p + 1.
        is_sample: whether token p + 1 is to be sampled from it; otherwise it is a prompt logprob row.
    """

    entry: int
    position: int
    is_sample: bool


def build_forward_batch(schedule: Schedule, *, block_size: int) -> tuple[ForwardBatch, list[LogitsRow]]:
    """Flatten a schedule, whose block tables already hold every slot it writes.

    Returns the batch and, for each entry of `logits_rows` in order, what it is for. An entry that wants prompt
    logprobs gets a row for each of its prompt positions but the last one of the prompt, whose row, if present, is the
    sampled one.
    """
    entries = schedule.entries
    num_seqs = len(entries)
    num_tokens = schedule.num_tokens
    token_ids = np.empty(num_tokens, dtype=np.int64)
    positions = np.empty(num_tokens, dtype=np.int64)
    slot_mapping = np.empty(num_tokens, dtype=np.int64)
    query_start = np.zeros(num_seqs + 1, dtype=np.int32)
    seq_lens = np.empty(num_seqs, dtype=np.int32)
    max_blocks = max((len(entry.seq.block_table) for entry in entries), default=0)
    block_tables = np.zeros((num_seqs, max_blocks), dtype=np.int32)
    rows: list[int] = []
    meanings: list[LogitsRow] = []

    row = 0
    for i, entry in enumerate(entries):
        seq, start, count = entry.seq, entry.start, entry.num_tokens
        stop = start + count
        table = seq.block_table
        block_tables[i, : len(table)] = table
        seq_lens[i] = stop
        query_start[i + 1] = row + count
        if count == 1:
            token_ids[row] = seq.token_ids(start, stop)[0]
            positions[row] = start
            slot_mapping[row] = table[start // block_size] * block_size + start % block_size
        else:
            token_ids[row : row + count] = seq.token_ids(start, stop)
            place = np.arange(start, stop, dtype=np.int64)
            positions[row : row + count] = place
            slot_mapping[row : row + count] = block_tables[i, place // block_size].astype(np.int64) * block_size + (
                place % block_size
            )
        if entry.wants_prompt_logprobs:
            last = min(stop, seq.num_prompt_tokens - 1)
            for position in range(start, last):
                rows.append(row + position - start)
                meanings.append(LogitsRow(entry=i, position=position, is_sample=False))
        if entry.needs_sample:
            rows.append(row + count - 1)
            meanings.append(LogitsRow(entry=i, position=stop - 1, is_sample=True))
        row += count

    batch = ForwardBatch(
        token_ids=token_ids,
        positions=positions,
        slot_mapping=slot_mapping,
        query_start=query_start,
        seq_lens=seq_lens,
        block_tables=block_tables,
        logits_rows=np.array(rows, dtype=np.int64),
        block_copies=np.array(schedule.block_copies, dtype=np.int64).reshape(-1, 2),
    )
    return batch, meanings
