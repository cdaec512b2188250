"""What should stand in every KV slot, kept as numbers instead of tensors: the checker behind the scripted executor.

The KV of a token depends on the token and on everything before it, so a slot is described completely by one number:
the *history* of its token, a chain hash over the token ids 0..position. The shadow stores it per slot together with
the history before the token. A block table is right exactly when, position by position, the slot was written, for
that position, and on top of the history that the slot before it holds.
"""

import numpy as np
from numpy.typing import NDArray

from engine.execution.forward_batch import ForwardBatch
from engine.sequence import Sequence

EMPTY_HISTORY = 0x9E3779B97F4A7C15
NEVER_WRITTEN = -1
_MASK = (1 << 64) - 1


class ShadowKVError(AssertionError):
    """A batch reads or writes KV that isn't its own; the message has block, slot, position and what is there."""


def extend_history(history: int, token_id: int) -> int:
    """Return the history of `token_id` standing behind `history`: 64 bits, the same on every platform."""
    mixed = ((history ^ token_id) * 0x2545F4914F6CDD1D + 0x632BE59BD9B4E019) & _MASK
    return mixed ^ (mixed >> 29)


def history_of(token_ids: list[int], start: int = EMPTY_HISTORY) -> int:
    """Return the history of the last of `token_ids`, which stand behind `start`."""
    history = start
    for token_id in token_ids:
        history = extend_history(history, token_id)
    return history


class HistoryCheck:
    """Compares the history that a row's KV tells with that of the row's own sequence.

    Remembers how far it has read the last 1024 choices, for the next token needs only the next step of the chain.
    """

    _CAPACITY = 1024

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    def require(self, seq: Sequence, *, position: int, found: int) -> None:
        """Raise ShadowKVError unless `found` is the history before `position` of a sequence."""
        if found != self.history_before(seq, position):
            raise ShadowKVError(
                f"{seq!r} predicts position {position} from KV that is a well-formed prefix of another sequence; its "
                f"block table is {seq.block_table}"
            )

    def history_before(self, seq: Sequence, position: int) -> int:
        """Return the history of a sequence's token `position - 1`, going on from where it was last asked."""
        key = (seq.request_id, seq.index)
        stop, history = self._known.pop(key, (0, EMPTY_HISTORY))
        if stop > position:
            stop, history = 0, EMPTY_HISTORY
        history = history_of(seq.token_ids(stop, position), history)
        self._known[key] = (position, history)
        if len(self._known) > self._CAPACITY:
            del self._known[next(iter(self._known))]
        return history


class ShadowKV:
    """The slots of a KV pool.

    Args:
        num_blocks: blocks in the pool.
        block_size: slots per block.
    """

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        num_slots = num_blocks * block_size
        self._position: NDArray[np.int64] = np.full(num_slots, NEVER_WRITTEN, dtype=np.int64)
        self._before: NDArray[np.uint64] = np.zeros(num_slots, dtype=np.uint64)
        self._history: NDArray[np.uint64] = np.zeros(num_slots, dtype=np.uint64)
        self._is_written_now: NDArray[np.bool_] = np.zeros(num_slots, dtype=np.bool_)

    def run(self, batch: ForwardBatch) -> NDArray[np.uint64]:
        """Do a step as a real executor would: copy, read what each sequence sees, write.

        Returns uint64 [num_tokens], the history of each token row as the *KV* tells it. Raises ShadowKVError on a
        malformed batch, a slot read that doesn't hold its sequence's prefix, and a slot written that another
        sequence of the batch sees or writes.
        """
        self._check_form(batch)
        self._copy_blocks(batch)
        self._check_writes(batch)
        histories = np.empty(batch.num_tokens, dtype=np.uint64)
        before = np.empty(batch.num_tokens, dtype=np.uint64)
        for i in range(batch.num_seqs):
            first, last = int(batch.query_start[i]), int(batch.query_start[i + 1])
            history = self._read_prefix(batch, i, num_visible=int(batch.seq_lens[i]) - (last - first))
            for row, token_id in enumerate(batch.token_ids[first:last].tolist(), start=first):
                before[row] = history
                history = extend_history(history, token_id)
                histories[row] = history
        self._position[batch.slot_mapping] = batch.positions
        self._before[batch.slot_mapping] = before
        self._history[batch.slot_mapping] = histories
        return histories

    def visible_slots(self, batch: ForwardBatch, seq: int, num_visible: int) -> NDArray[np.int64]:
        """Return int64 [num_visible], the slots of positions 0..num_visible-1 of the batch's sequence `seq`."""
        places = np.arange(num_visible, dtype=np.int64)
        table = batch.block_tables[seq].astype(np.int64)
        slots: NDArray[np.int64] = table[places // self.block_size] * self.block_size + places % self.block_size
        return slots

    def _read_prefix(self, batch: ForwardBatch, seq: int, *, num_visible: int) -> int:
        if num_visible == 0:
            return EMPTY_HISTORY
        slots = self.visible_slots(batch, seq, num_visible)
        expected_before = np.empty(num_visible, dtype=np.uint64)
        expected_before[0] = EMPTY_HISTORY
        expected_before[1:] = self._history[slots[:-1]]
        wrong = (self._position[slots] != np.arange(num_visible)) | (self._before[slots] != expected_before)
        if wrong.any():
            position = int(np.argmax(wrong))
            slot = int(slots[position])
            block = slot // self.block_size
            held = int(self._position[slot])
            if held == NEVER_WRITTEN:
                found = "which was never written"
            elif held != position:
                found = f"which holds a token of position {held}"
            else:
                found = "which holds a token that stands behind another history"
            raise ShadowKVError(
                f"sequence {seq} of the batch sees {num_visible} computed tokens, but reads position {position} from "
                f"slot {slot} (block {block}, entry {position // self.block_size} of its table), {found}"
            )
        return int(self._history[slots[-1]])

    def _copy_blocks(self, batch: ForwardBatch) -> None:
        copies = batch.block_copies
        if not len(copies):
            return
        self._check_blocks(copies, "block_copies")
        sources, destinations = copies[:, 0], copies[:, 1]
        if len(np.unique(destinations)) != len(destinations):
            raise ShadowKVError(f"block_copies write one block twice: {copies.tolist()}")
        if np.isin(destinations, sources).any():
            raise ShadowKVError(f"block_copies read a block that they also write: {copies.tolist()}")
        offsets = np.arange(self.block_size, dtype=np.int64)
        read = (sources[:, None] * self.block_size + offsets).ravel()
        write = (destinations[:, None] * self.block_size + offsets).ravel()
        for array in (self._position, self._before, self._history):
            array[write] = array[read]

    def _check_writes(self, batch: ForwardBatch) -> None:
        written = batch.slot_mapping
        unique, counts = np.unique(written, return_counts=True)
        if len(unique) != len(written):
            slot = int(unique[np.argmax(counts > 1)])
            rows = np.flatnonzero(written == slot).tolist()
            raise ShadowKVError(f"token rows {rows} write the same slot {slot} (block {slot // self.block_size})")
        self._is_written_now[written] = True
        for i in range(batch.num_seqs):
            num_visible = int(batch.seq_lens[i]) - int(batch.query_start[i + 1] - batch.query_start[i])
            seen = self.visible_slots(batch, i, num_visible)
            clash = self._is_written_now[seen]
            if clash.any():
                self._is_written_now[written] = False
                position = int(np.argmax(clash))
                slot = int(seen[position])
                row = int(np.argmax(written == slot))
                writer = int(np.searchsorted(batch.query_start, row, side="right")) - 1
                raise ShadowKVError(
                    f"sequence {writer} of the batch writes slot {slot} (block {slot // self.block_size}) for its "
                    f"position {int(batch.positions[row])}, which sequence {i} sees as its position {position}"
                )
        self._is_written_now[written] = False

    def _check_form(self, batch: ForwardBatch) -> None:
        starts, lens = batch.query_start, batch.seq_lens
        counts = np.diff(starts)
        if len(starts) != batch.num_seqs + 1 or starts[0] != 0 or starts[-1] != batch.num_tokens or (counts < 1).any():
            raise ShadowKVError(f"query_start {starts.tolist()} doesn't cut {batch.num_tokens} tokens into sequences")
        needed = -(-lens // self.block_size)
        if batch.num_seqs and int(needed.max()) > batch.block_tables.shape[1]:
            raise ShadowKVError(f"seq_lens {lens.tolist()} need more than {batch.block_tables.shape[1]} blocks")
        for i in range(batch.num_seqs):
            stop = int(lens[i])
            rows = slice(int(starts[i]), int(starts[i + 1]))
            table = batch.block_tables[i, : int(needed[i])]
            self._check_blocks(table, f"block_tables[{i}]")
            if len(set(table.tolist())) != len(table):
                raise ShadowKVError(f"block_tables[{i}] holds a block twice: {table.tolist()}")
            places = np.arange(stop - int(counts[i]), stop, dtype=np.int64)
            if not np.array_equal(batch.positions[rows], places):
                raise ShadowKVError(f"positions of sequence {i} aren't {places[0]}..{stop - 1}")
            slots = table[places // self.block_size].astype(np.int64) * self.block_size + places % self.block_size
            if not np.array_equal(batch.slot_mapping[rows], slots):
                raise ShadowKVError(f"slot_mapping of sequence {i} disagrees with its block table {table.tolist()}")
        rows_in_order = (np.diff(batch.logits_rows) > 0).all()
        if len(batch.logits_rows) and not (
            rows_in_order and batch.logits_rows[0] >= 0 and batch.logits_rows[-1] < batch.num_tokens
        ):
            raise ShadowKVError(
                f"logits_rows {batch.logits_rows.tolist()} must ascend within 0..{batch.num_tokens - 1}"
            )

    def _check_blocks(self, blocks: NDArray[np.int32] | NDArray[np.int64], what: str) -> None:
        if len(blocks) and (int(blocks.min()) < 0 or int(blocks.max()) >= self.num_blocks):
            raise ShadowKVError(f"{what} must lie in 0..{self.num_blocks - 1}: {blocks.tolist()}")
