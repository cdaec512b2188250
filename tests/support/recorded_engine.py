"""An engine core over a torch executor, whose every logits row is kept: what the equivalence suite compares."""

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.events import AnyEvent, EventLog
from engine.execution.executor import Executor, ModelRunner, SampledToken, SamplingRow
from engine.kv.block_manager import BlockManager
from engine.sampling.sampler import TorchSampler
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest

Place = tuple[str, int, int]
"""(request id, choice index, position of the predicted token)."""


class RecordingSampler:
    """Passes rows on to a sampler and keeps a copy of the logits that each was given."""

    def __init__(self, sampler: TorchSampler) -> None:
        self._sampler = sampler
        self.logits: dict[Place, torch.Tensor] = {}

    def sample(self, logits: torch.Tensor, rows: Many[SamplingRow]) -> list[SampledToken]:
        for row in rows:
            self.logits[row.seq.request_id, row.index, row.position] = logits[row.logits_row].clone()
        return self._sampler.sample(logits, rows)


@dataclass
class EngineRun:
    """What came of a set of requests.

    Attributes:
        tokens: output of each (request id, choice index).
        logits: float32 [vocab_size] of each place.
        errors: messages of requests that failed.
        num_cached: prompt tokens of each request found in the prefix cache.
    """

    tokens: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    logits: dict[Place, torch.Tensor] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    num_cached: dict[str, int] = field(default_factory=dict)
    events: list[AnyEvent] = field(default_factory=list)

    def count(self, event_type: type[AnyEvent]) -> int:
        return sum(isinstance(event, event_type) for event in self.events)

    def largest_difference(self, other: "EngineRun") -> float:
        """Largest absolute difference of two logits at the same place; both runs must have the same places."""
        assert self.logits.keys() == other.logits.keys()
        return max(float((row - other.logits[place]).abs().max()) for place, row in self.logits.items())


def run_requests(
    executor: Executor[torch.Tensor],
    vocab_size: int,
    waves: Many[Many[EngineRequest]],
    *,
    block_size: int,
    num_blocks: int,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 512,
    prefix_cache: bool = False,
) -> EngineRun:
    """Run waves of requests through a fresh scheduler and pool; a wave starts when the one before has ended."""
    config = SchedulerConfig(
        block_size=block_size,
        num_kv_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prefix_cache=prefix_cache,
    )
    clock = ManualClock()
    events = EventLog(clock)
    sampler = RecordingSampler(TorchSampler(vocab_size, ()))
    core = EngineCore(
        Scheduler(config, BlockManager(config, events), events), ModelRunner(executor, sampler), events, clock
    )
    run = EngineRun(logits=sampler.logits)
    for wave in waves:
        for request in wave:
            core.add(request)
        while core.has_work:
            step = core.step()
            run.events.extend(step.events)
            for output in step.outputs:
                if output.error:
                    run.errors[output.request_id] = output.error
                run.tokens.setdefault((output.request_id, output.index), []).extend(output.token_ids)
                run.num_cached[output.request_id] = max(
                    output.num_cached_tokens, run.num_cached.get(output.request_id, 0)
                )
    return run


def request(name: str, prompt: list[int], max_tokens: int, **settings: object) -> EngineRequest:
    """Return a request that generates exactly `max_tokens`; greedy unless the settings say otherwise."""
    params = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, "max_tokens": max_tokens, **settings})  # type: ignore[arg-type]
    return EngineRequest(request_id=name, prompt_token_ids=prompt, params=params, arrival=0.0)
