"""The paged KV cache of a torch executor: blocks of keys and values, head by head."""

import torch

from engine.model.spec import DecoderSpec


class PagedKVCache:
    """Keys and values of every layer, float or half, on one device.

    Layout: [num_layers, num_kv_heads, num_blocks, block_size, head_dim]. Head-major, so that the blocks a sequence
    gathers come out as one matrix per head with no transpose, and block_size * head_dim elements move at a time.
    """

    def __init__(
        self, spec: DecoderSpec, *, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (spec.num_layers, spec.num_kv_heads, num_blocks, block_size, spec.head_dim)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self._key_rows = self.keys.flatten(2, 3)  # [num_layers, num_kv_heads, num_slots, head_dim]
        self._value_rows = self.values.flatten(2, 3)
        self._key_blocks = self.keys.view(spec.num_layers, spec.num_kv_heads * num_blocks, block_size * spec.head_dim)
        self._value_blocks = self.values.view_as(self._key_blocks)

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def copy_blocks(self, pairs: torch.Tensor) -> None:
        """Copy whole blocks in every layer: pairs int64 [num_copies, 2] of (source, destination).

        All sources are read before anything is written, so a block may be source and destination in one step.
        """
        source, target = pairs[:, 0], pairs[:, 1]
        keys, values = self.keys[:, :, source], self.values[:, :, source]
        self.keys[:, :, target] = keys
        self.values[:, :, target] = values

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store keys and values [num_tokens, num_kv_heads, head_dim] at int64 slots [num_tokens], in place."""
        self._key_rows[layer].index_copy_(1, slots, keys.transpose(0, 1))
        self._value_rows[layer].index_copy_(1, slots, values.transpose(0, 1))

    def gather_keys(self, layer: int, rows: torch.Tensor, out: torch.Tensor) -> None:
        """Copy blocks into `out` [len(rows), block_size * head_dim]; a row is kv_head * num_blocks + block_id."""
        torch.index_select(self._key_blocks[layer], 0, rows, out=out)

    def gather_values(self, layer: int, rows: torch.Tensor, out: torch.Tensor) -> None:
        """The same for values."""
        torch.index_select(self._value_blocks[layer], 0, rows, out=out)
