"""Softmax attention over gathered blocks, batched over the sequences of a group.

A row's result must not depend on how far its group is padded, nor on how many rows are multiplied at once, although
BLAS chooses its kernel and its split of a sum by the shape. Measured on MKL: products of three rows or more agree bit
for bit, and so do sums over at most 384 keys however many zeros follow. So fewer rows are padded (on CPUs), and the
weighted sum of values goes in spans of KEY_SPAN keys, each added to the one before.
"""

import torch

from engine.execution.attention_plan import AttentionGroup, QueryTile
from engine.execution.paged_cache import PagedKVCache

KEY_SPAN = 256
KEY_ALIGNMENT = 16  # padded key counts are a multiple of it: softmax then adds its lanes up alike
_MIN_ROWS_ON_CPU = 4


class PagedAttention:
    """Attention of one model over one cache; holds the buffers that gathered keys and values land in.

    Args:
        cache: where keys and values are.
        num_heads, num_kv_heads, head_dim: query head h reads KV head h * num_kv_heads // num_heads.
    """

    def __init__(self, cache: PagedKVCache, *, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        self._cache = cache
        self._num_kv_heads = num_kv_heads
        self._group_size = num_heads // num_kv_heads
        self._head_dim = head_dim
        self._scale = head_dim**-0.5
        self._min_rows = _MIN_ROWS_ON_CPU if cache.keys.device.type == "cpu" else 1
        self._keys = cache.keys.new_empty(0)
        self._values = cache.values.new_empty(0)

    def __call__(self, layer: int, query: torch.Tensor, groups: list[AttentionGroup]) -> torch.Tensor:
        """Return [num_tokens, num_heads * head_dim] for query [num_tokens, num_heads, head_dim]; KV already written."""
        if len(groups) == 1:
            return self._attend(layer, query, groups[0])
        out = torch.empty_like(query).flatten(1)
        for group in groups:
            out[group.rows] = self._attend(layer, query[group.rows], group)
        return out

    def _attend(self, layer: int, query: torch.Tensor, group: AttentionGroup) -> torch.Tensor:
        """Attend one group: query [num_seqs * query_len, num_heads, head_dim], rows in the group's order."""
        keys, values = self._gather(layer, group)
        shape = (group.num_seqs, group.query_len, self._num_kv_heads, self._group_size, self._head_dim)
        query = query.view(shape).permute(2, 0, 1, 3, 4)  # [num_kv_heads, num_seqs, query_len, group_size, head_dim]
        parts = [self._attend_tile(query, keys, values, group.num_seqs, tile) for tile in group.tiles]
        out = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return out.permute(1, 2, 0, 3, 4).reshape(group.num_seqs * group.query_len, -1)

    def _attend_tile(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, num_seqs: int, tile: QueryTile
    ) -> torch.Tensor:
        """Return [num_kv_heads, num_seqs, tile, group_size, head_dim]."""
        tile_query = query[:, :, tile.start : tile.stop]
        num_rows = (tile.stop - tile.start) * self._group_size
        repeats = -(-self._min_rows // num_rows)
        rows = tile_query if repeats == 1 else tile_query.repeat(1, 1, 1, repeats, 1)
        shape = rows.shape
        rows = rows.reshape(keys.shape[0], -1, self._head_dim)
        scores = torch.bmm(rows, keys[:, : tile.num_keys].transpose(1, 2))
        scores.mul_(self._scale).view(*shape[:-1], -1).masked_fill_(tile.hidden, -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        out = torch.bmm(weights[:, :, :KEY_SPAN], values[:, : min(KEY_SPAN, tile.num_keys)])
        for start in range(KEY_SPAN, tile.num_keys, KEY_SPAN):
            stop = min(start + KEY_SPAN, tile.num_keys)
            out.baddbmm_(weights[:, :, start:stop], values[:, start:stop])
        return out.view(shape)[:, :, :, : self._group_size]

    def _gather(self, layer: int, group: AttentionGroup) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [num_kv_heads * num_seqs, num_keys, head_dim], valid until the next gather."""
        num_elements = self._num_kv_heads * group.num_seqs * group.num_keys * self._head_dim
        if self._keys.numel() < num_elements:
            self._keys = self._keys.new_empty(num_elements)
            self._values = self._values.new_empty(num_elements)
        blocks = (len(group.block_rows), -1)
        keys, values = self._keys[:num_elements].view(blocks), self._values[:num_elements].view(blocks)
        self._cache.gather_keys(layer, group.block_rows, keys)
        self._cache.gather_values(layer, group.block_rows, values)
        values.view(self._num_kv_heads, -1, self._head_dim).index_fill_(1, group.stale, 0)
        shape = (self._num_kv_heads * group.num_seqs, group.num_keys, self._head_dim)
        return keys.view(shape), values.view(shape)
