"""A block manager with its events, and sequences to give blocks to, without a scheduler."""

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.events import BlockPublished, EventLog
from engine.kv.block_manager import BlockManager
from engine.sampling_params import SamplingParams
from engine.sequence import EngineRequest, Sequence
from tests.support.event_text import spell


class KVBench:
    """Attributes: `blocks`, the manager under test; `live`, the sequences that hold blocks."""

    def __init__(self, *, num_blocks: int, block_size: int = 4, max_evicted: int = 8192, **settings: object) -> None:
        config = SchedulerConfig(num_kv_blocks=num_blocks, block_size=block_size, **settings)  # type: ignore[arg-type]
        self._log = EventLog(ManualClock())
        self.blocks = BlockManager(config, self._log, max_evicted_prefixes=max_evicted)
        self.live: list[Sequence] = []

    def seq(self, name: str, prompt: list[int], *, salt: str = "", index: int = 0, **params: object) -> Sequence:
        request = EngineRequest(
            request_id=name,
            prompt_token_ids=prompt,
            params=SamplingParams(**params),  # type: ignore[arg-type]
            arrival=0.0,
            cache_salt=salt,
        )
        return Sequence(request, index=index)

    def admit(self, seq: Sequence) -> int:
        """Match and admit; return the tokens matched."""
        match = self.blocks.match(seq)
        self.blocks.admit(seq, match)
        self.live.append(seq)
        return match.num_tokens

    def compute(self, seq: Sequence, num_tokens: int | None = None) -> None:
        """Allocate, copy, write and publish the next tokens, by default all that are known."""
        count = seq.num_tokens - seq.num_computed_tokens if num_tokens is None else num_tokens
        self.blocks.allocate(seq, count)
        self.blocks.take_copies()
        self.blocks.note_computed(count)
        seq.num_computed_tokens += count
        self.blocks.publish(seq)

    def run(self, name: str, prompt: list[int], *, salt: str = "", outputs: list[int] | None = None) -> Sequence:
        """Admit and compute a prompt and given outputs."""
        seq = self.seq(name, prompt, salt=salt)
        self.admit(seq)
        self.compute(seq)
        for token in outputs or []:
            seq.output_token_ids.append(token)
            self.compute(seq)
        return seq

    def release(self, seq: Sequence, *, is_faulty: bool = False) -> None:
        self.blocks.release(seq, is_faulty=is_faulty)
        self.live.remove(seq)

    def cache(self, name: str, prompt: list[int], *, salt: str = "") -> list[int]:
        """Compute a prompt and let go of it; return the block table it had."""
        seq = self.run(name, prompt, salt=salt)
        table = list(seq.block_table)
        self.release(seq)
        return table

    def events(self) -> list[str]:
        """Return what was said since the last call, one line an event, and check the bookkeeping."""
        self.blocks.check_invariants(self.live)
        return [spell(event) for event in self._log.drain()]

    def published(self) -> list[BlockPublished]:
        """Return the publications since the last call of `events` or this."""
        return [event for event in self._log.drain() if isinstance(event, BlockPublished)]

    @property
    def counts(self) -> tuple[int, int, int]:
        """(free, referenced, cached)."""
        counts = self.blocks.counts
        return counts.free, counts.referenced, counts.cached
