"""DecoderSpec: a decoder-only transformer as data. Loaders produce it, executors consume it."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from engine.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Stretch of the rotary frequencies.

    Attributes:
        kind: `linear` divides every frequency by `factor`; `llama3` divides the low ones and blends between
            (Llama 3.1, section on long context; transformers `rope_type: llama3`); `per_frequency` divides frequency i
            by `factors[i]` (what a GGUF file of Llama 3.1 stores instead of the llama3 numbers).
        low_freq_factor, high_freq_factor, original_max_positions: llama3 only.
        factors: per_frequency only; head_dim / 2 numbers.

    The frequencies themselves are in `engine.model.rope`.
    """

    kind: Literal["linear", "llama3", "per_frequency"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(isfinite(factor) and factor > 0 for factor in (self.factor, *self.factors)):
            raise ModelLoadError(f"rope scaling factors must be positive, found {self.factor}, {self.factors}")
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ModelLoadError(
                "`low_freq_factor` must be positive and below `high_freq_factor`, "
                f"found {self.low_freq_factor} and {self.high_freq_factor}"
            )
        if self.kind == "llama3" and self.original_max_positions < 1:
            raise ModelLoadError(f"`original_max_positions` must be at least 1, found {self.original_max_positions}")


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Shapes and switches of one model.

    Canonical weights (float32 shapes, all matrices [out_features, in_features], Q and K rows in half-split rotary
    order, i.e. x1 = first half of head_dim, x2 = second half):

        embed.weight [vocab_size, hidden_size]            head.weight, absent when tie_word_embeddings
        final_norm.weight [hidden_size]
        layers.{i}.attn_norm.weight, layers.{i}.mlp_norm.weight [hidden_size]
        layers.{i}.q.weight [num_heads * head_dim, hidden_size]   .bias when qkv_bias
        layers.{i}.k.weight, layers.{i}.v.weight [num_kv_heads * head_dim, hidden_size]   .bias when qkv_bias
        layers.{i}.o.weight [hidden_size, num_heads * head_dim]
        layers.{i}.q_norm.weight, layers.{i}.k_norm.weight [head_dim] when qk_norm
        layers.{i}.gate.weight, layers.{i}.up.weight [intermediate_size, hidden_size]
        layers.{i}.down.weight [hidden_size, intermediate_size]

    Attributes:
        architecture: family name as the file says it (`llama`, `qwen2`, `qwen3`).
        rope_theta: base of the rotary frequencies. rope_dim: rotated part of head_dim (equal to it in these families).
        norm_eps: RMSNorm epsilon.
        max_position_embeddings: context the model was trained for, tokens.
        qkv_bias, qk_norm, tie_word_embeddings: see the list above.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    qkv_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_position_embeddings",
        ):
            if getattr(self, name) < 1:
                raise ModelLoadError(f"`{name}` must be at least 1, found {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads:
            raise ModelLoadError(
                f"`num_heads` ({self.num_heads}) must be a multiple of `num_kv_heads` ({self.num_kv_heads})"
            )
        if self.head_dim % 2:
            raise ModelLoadError(f"`head_dim` must be even for rotary positions, found {self.head_dim}")
        for name in ("rope_theta", "norm_eps"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ModelLoadError(f"`{name}` must be a positive number, found {getattr(self, name)}")
        if self.rope_scaling is not None and self.rope_scaling.kind == "per_frequency":
            count = len(self.rope_scaling.factors)
            if count != self.head_dim // 2:
                raise ModelLoadError(f"rope scaling must have {self.head_dim // 2} factors, found {count}")

    @property
    def kv_bytes_per_token_fp32(self) -> int:
        return 2 * 4 * self.num_layers * self.num_kv_heads * self.head_dim

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and float32 shape of every canonical weight, exactly those that a loader must deliver."""
        hidden, head = self.hidden_size, self.head_dim
        q_rows, kv_rows = self.num_heads * head, self.num_kv_heads * head
        shapes: dict[str, tuple[int, ...]] = {"embed.weight": (self.vocab_size, hidden), "final_norm.weight": (hidden,)}
        if not self.tie_word_embeddings:
            shapes["head.weight"] = (self.vocab_size, hidden)
        for i in range(self.num_layers):
            layer = f"layers.{i}"
            shapes[f"{layer}.attn_norm.weight"] = (hidden,)
            shapes[f"{layer}.mlp_norm.weight"] = (hidden,)
            shapes[f"{layer}.q.weight"] = (q_rows, hidden)
            shapes[f"{layer}.k.weight"] = (kv_rows, hidden)
            shapes[f"{layer}.v.weight"] = (kv_rows, hidden)
            shapes[f"{layer}.o.weight"] = (hidden, q_rows)
            if self.qkv_bias:
                shapes[f"{layer}.q.bias"] = (q_rows,)
                shapes[f"{layer}.k.bias"] = (kv_rows,)
                shapes[f"{layer}.v.bias"] = (kv_rows,)
            if self.qk_norm:
                shapes[f"{layer}.q_norm.weight"] = (head,)
                shapes[f"{layer}.k_norm.weight"] = (head,)
            shapes[f"{layer}.gate.weight"] = (self.intermediate_size, hidden)
            shapes[f"{layer}.up.weight"] = (self.intermediate_size, hidden)
            shapes[f"{layer}.down.weight"] = (hidden, self.intermediate_size)
        return shapes
