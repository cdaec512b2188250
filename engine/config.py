"""The engine's settings: built once, checked together, never changed."""

from typing import Literal

import msgspec

from engine.errors import ConfigError

ExecutorName = Literal["auto", "native", "torch", "reference"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16", "int8"]
KvDtypeName = Literal["auto", "float32", "bfloat16", "float16", "int8"]
OverflowRule = Literal["reject", "truncate"]


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler and the block manager need to know; no torch, no model.

    Attributes:
        block_size: tokens per KV block.
        num_kv_blocks: blocks in the pool.
        max_num_seqs: sequences running at once.
        max_num_batched_tokens: token budget of one step.
        max_model_len: prompt + output tokens of one sequence at most.
        prefix_cache: reuse KV of equal prefixes.
        overflow: a request whose prompt fits but whose prompt + max_tokens can never fit is refused (`reject`), or
            served until it is full and finished with `length` (`truncate`).
        max_preemptions: a sequence preempted so often comes back only when it needn't be again, >= 1.
        watchdog_steps: empty steps in a row, with something waiting, before `stalled` is raised.
    """

    block_size: int = 16
    num_kv_blocks: int = 1024
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_model_len: int = 8192
    prefix_cache: bool = True
    overflow: OverflowRule = "reject"
    max_preemptions: int = 8
    watchdog_steps: int = 3

    def __post_init__(self) -> None:
        for name in (
            "block_size",
            "num_kv_blocks",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "max_preemptions",
            "watchdog_steps",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be at least 1, got {getattr(self, name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"`max_num_batched_tokens` must be at least `max_num_seqs` ({self.max_num_seqs}), so that every "
                f"running sequence can decode in a step, got {self.max_num_batched_tokens}"
            )

    @property
    def max_request_tokens(self) -> int:
        """Prompt + output tokens of one sequence that context and pool can hold."""
        return min(self.max_model_len, self.num_kv_blocks * self.block_size)


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the engine process is started with.

    Attributes:
        model: path of a `.gguf` or a Hugging Face directory, a catalogue name, a hub id, or `random:<preset>`.
        dtype: of weights and computation; `auto` is float32 on CPUs, and the file's own precision on the native
            executor. `int8`, which the native executor alone has, makes 8 bits of matrices that come in float, with a
            scale for every 32 inputs, and leaves those that come in blocks as they are. `bfloat16` on the native
            executor, which needs AMX for it, multiplies every matrix but the vocabulary's in tiles of bfloat16: nearer
            to exact and faster for prompts, slower for a few decodes at once.
        kv_dtype: of the KV cache. `auto` is float16 on the native executor (bfloat16 with AMX or AVX-512 BF16, which
            multiply it), or float32 if `dtype` is; the others keep keys and values in the precision in which they
            compute, and have no choice.
        executor: `auto` is `native` on CPUs with AVX2 when its kernels are built and dtype allows it, else `torch`.
        device: `auto`, `cpu`, `cuda`, `cuda:1` ...
        threads: compute threads on CPUs; 0 means one per physical core.
        block_size, max_num_seqs, prefix_cache, overflow: see SchedulerConfig.
        max_num_batched_tokens: see SchedulerConfig; 0 means 256 on the native executor and 512 on the others, or more
            if `max_num_seqs` asks for it.
        num_kv_blocks: 0 derives it from `kv_cache_bytes`.
        kv_cache_bytes: memory for the KV pool when num_kv_blocks is 0; 0 means what one sequence of full length, or
            136 tokens for each of max_num_seqs, takes, but no more than 1 GiB.
        max_model_len: 0 means what the model was trained for (capped by the pool).
        instruments: say every event; without them only what the client needs, so that their cost can be measured.
        heartbeat_s: longest silence of a healthy engine process.
    """

    model: str
    dtype: DtypeName = "auto"
    kv_dtype: KvDtypeName = "auto"
    executor: ExecutorName = "auto"
    device: str = "auto"
    threads: int = 0
    block_size: int = 16
    num_kv_blocks: int = 0
    kv_cache_bytes: int = 0
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    prefix_cache: bool = True
    overflow: OverflowRule = "reject"
    instruments: bool = True
    heartbeat_s: float = 0.5

    def __post_init__(self) -> None:
        for name in ("threads", "num_kv_blocks", "kv_cache_bytes", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 0:
                raise ConfigError(f"`{name}` must be at least 0, got {getattr(self, name)}")
        for name in ("block_size", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be at least 1, got {getattr(self, name)}")
