"""Drive an executor without a scheduler: sequences with hand-given blocks, chunks and steps."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from engine.execution.executor import Executor
from engine.execution.forward_batch import build_forward_batch
from engine.sampling_params import SamplingParams
from engine.schedule import Schedule, ScheduledSequence
from engine.sequence import EngineRequest, Sequence


@dataclass
class PagedRun:
    """A block pool that hands out blocks in a scrambled order, and sequences computed step by step.

    Attributes:
        logits: for each sequence (by name) the logits row computed at each position that asked for one.
    """

    executor: Executor[torch.Tensor]
    block_size: int
    num_blocks: int
    seed: int = 0
    logits: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = np.random.default_rng(self.seed).permutation(self.num_blocks)
        self._free = [int(block) for block in order]

    def add(self, name: str, prompt: Iterable[int], *, all_rows: bool = False) -> Sequence:
        """Make a sequence; with all_rows every prompt position's logits are kept."""
        params = SamplingParams(temperature=0.0, prompt_logprobs=0 if all_rows else -1)
        request = EngineRequest(request_id=name, prompt_token_ids=list(prompt), params=params, arrival=0.0)
        return Sequence(request)

    def step(self, *shares: tuple[Sequence, int], copies: tuple[tuple[int, int], ...] = ()) -> None:
        """Compute the next `count` tokens of each sequence in one forward pass and keep their logits."""
        entries = []
        for seq, count in shares:
            stop = seq.num_computed_tokens + count
            while len(seq.block_table) * self.block_size < stop:
                seq.block_table.append(self._free.pop())
            entries.append(
                ScheduledSequence(
                    seq=seq,
                    start=seq.num_computed_tokens,
                    num_tokens=count,
                    is_decode=not seq.is_prefilling,
                    needs_sample=stop == seq.num_tokens,
                )
            )
        schedule = Schedule(entries=tuple(entries), block_copies=copies)
        batch, rows = build_forward_batch(schedule, block_size=self.block_size)
        logits = self.executor.execute(batch).clone()
        assert logits.shape[0] == len(rows)
        for row, meaning in enumerate(rows):
            self.logits[entries[meaning.entry].seq.request_id, meaning.position] = logits[row]
        for seq, count in shares:
            seq.num_computed_tokens += count

    def last_logits(self, seq: Sequence) -> torch.Tensor:
        return self.logits[seq.request_id, seq.num_tokens - 1]

    def append_greedy(self, seq: Sequence) -> int:
        token = int(self.last_logits(seq).argmax())
        seq.output_token_ids.append(token)
        return token

    def generate(self, seq: Sequence, count: int, *, chunk: int = 0) -> list[int]:
        """Prefill alone (in chunks if asked), then decode `count` tokens greedily, alone."""
        remaining = seq.num_tokens - seq.num_computed_tokens
        while remaining:
            take = min(chunk or remaining, remaining)
            self.step((seq, take))
            remaining -= take
        for _ in range(count - 1):
            self.append_greedy(seq)
            self.step((seq, 1))
        self.append_greedy(seq)
        return seq.output_token_ids[-count:]
