"""The oracle: one sequence at a time, one layer at a time, as the formulas are written. Slow on purpose."""

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)

from engine.execution.forward_batch import ForwardBatch
from engine.model.rope import inverse_frequencies
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights


class ReferenceExecutor:
    """Compute what a step means, without batching, fusion or padding.

    Args:
        spec, weights: the model.
        num_blocks, block_size: the paged KV pool, [num_blocks * block_size] slots a layer.
        dtype: float32, or float64 to measure how far float32 is from the exact value.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: Weights,
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._spec = spec
        self._dtype = dtype
        self._block_size = block_size
        self._weights = {name: torch.from_numpy(tensor.to_float32()).to(dtype) for name, tensor in weights.items()}
        self._frequencies = torch.from_numpy(inverse_frequencies(spec))
        slots = (spec.num_layers, num_blocks * block_size, spec.num_kv_heads, spec.head_dim)
        self._keys = torch.zeros(slots, dtype=dtype)
        self._values = torch.zeros(slots, dtype=dtype)

    @property
    def name(self) -> str:
        return "reference"

    @torch.inference_mode()
    def execute(self, batch: ForwardBatch) -> torch.Tensor:
        """Return float32 [num_logits, vocab_size] (float64 in that mode), on the CPU."""
        self._copy_blocks(batch)
        hidden_rows = [self._run_sequence(batch, i) for i in range(batch.num_seqs)]
        if not len(batch.logits_rows):
            return torch.empty((0, self._spec.vocab_size), dtype=self._dtype)
        hidden = torch.cat(hidden_rows)[torch.from_numpy(batch.logits_rows)]
        head = self._weights["embed.weight" if self._spec.tie_word_embeddings else "head.weight"]
        return hidden @ head.T

    def _copy_blocks(self, batch: ForwardBatch) -> None:
        size = self._block_size
        taken = [
            (target, self._keys[:, source * size : (source + 1) * size].clone(),
             self._values[:, source * size : (source + 1) * size].clone())
            for source, target in batch.block_copies.tolist()
        ]  # fmt: skip
        for target, keys, values in taken:
            self._keys[:, target * size : (target + 1) * size] = keys
            self._values[:, target * size : (target + 1) * size] = values

    def _run_sequence(self, batch: ForwardBatch, i: int) -> torch.Tensor:
        """Return the normalised hidden states [query_len, hidden_size] of sequence i, its KV written."""
        spec, w = self._spec, self._weights
        rows = slice(int(batch.query_start[i]), int(batch.query_start[i + 1]))
        length = int(batch.seq_lens[i])
        positions = torch.from_numpy(batch.positions[rows])
        written = torch.from_numpy(batch.slot_mapping[rows])
        place = torch.arange(length)
        table = torch.from_numpy(batch.block_tables[i].astype("int64"))
        visible = table[place // self._block_size] * self._block_size + place % self._block_size
        hidden = w["embed.weight"][torch.from_numpy(batch.token_ids[rows])]
        for layer in range(spec.num_layers):
            name = f"layers.{layer}"
            normed = self._norm(hidden, f"{name}.attn_norm.weight")
            query = torch.unflatten(self._project(normed, f"{name}.q"), -1, (spec.num_heads, spec.head_dim))
            key = torch.unflatten(self._project(normed, f"{name}.k"), -1, (spec.num_kv_heads, spec.head_dim))
            value = torch.unflatten(self._project(normed, f"{name}.v"), -1, (spec.num_kv_heads, spec.head_dim))
            if spec.qk_norm:
                query = self._norm(query, f"{name}.q_norm.weight")
                key = self._norm(key, f"{name}.k_norm.weight")
            self._keys[layer, written] = self._rotate(key, positions)
            self._values[layer, written] = value
            attended = self._attend(
                self._rotate(query, positions), self._keys[layer, visible], self._values[layer, visible], positions
            )
            hidden = hidden + self._project(attended.flatten(1), f"{name}.o")
            normed = self._norm(hidden, f"{name}.mlp_norm.weight")
            gated = F.silu(self._project(normed, f"{name}.gate")) * self._project(normed, f"{name}.up")
            hidden = hidden + self._project(gated, f"{name}.down")
        return self._norm(hidden, "final_norm.weight")

    def _project(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = x @ self._weights[f"{name}.weight"].T
        bias = self._weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = (x * x).mean(dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + self._spec.norm_eps) * self._weights[name]

    def _rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Turn [query_len, heads, head_dim] by each row's position; pairs are (i, i + head_dim / 2)."""
        angles = positions.to(torch.float64)[:, None, None] * self._frequencies
        cos, sin = angles.cos().to(self._dtype), angles.sin().to(self._dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Softmax attention of [query_len, num_heads, head_dim] over [seq_len, num_kv_heads, head_dim], causal."""
        future = torch.arange(len(keys))[None, :] > positions[:, None]
        outputs = []
        for head in range(self._spec.num_heads):
            kv_head = head * self._spec.num_kv_heads // self._spec.num_heads
            scores = query[:, head] @ keys[:, kv_head].T / self._spec.head_dim**0.5
            weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)
            outputs.append(weights @ values[:, kv_head])
        return torch.stack(outputs, dim=1)
