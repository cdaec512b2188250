"""A scheduler without an executor: steps whose tokens the test gives, and what it said as literal lines."""

from collections.abc import Callable

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import sampling_rows
from engine.events import Event, EventLog
from engine.execution.executor import SampledToken, SamplingRow
from engine.execution.forward_batch import build_forward_batch
from engine.kv.block_manager import BlockManager
from engine.messages import ChoiceOutput
from engine.preemption import ShortagePolicy
from engine.sampling_params import SamplingParams
from engine.schedule import Schedule
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest
from tests.support.event_text import spell

EOS = 0
Sample = Callable[[SamplingRow], SampledToken]


def counting(row: SamplingRow) -> SampledToken:
    """Choose 1000 + position: never an end of sequence, and different at each position."""
    return SampledToken(1000 + row.position)


class SchedulerBench:
    """Attributes: `scheduler`, `blocks`, `outputs` of all steps, `prompts` computed so far (tokens in chunks)."""

    def __init__(self, *, policy: ShortagePolicy | None = None, sample: Sample = counting, **settings: object) -> None:
        self.config = SchedulerConfig(**{"block_size": 4, "max_num_batched_tokens": 64, "max_num_seqs": 8, **settings})  # type: ignore[arg-type]
        self._log = EventLog(ManualClock())
        self._sample = sample
        self.blocks = BlockManager(self.config, self._log)
        self.scheduler = Scheduler(self.config, self.blocks, self._log, (EOS,), policy=policy)
        self.outputs: list[ChoiceOutput] = []
        self.num_steps = 0
        self.num_computed_tokens = 0

    def add(
        self, name: str, prompt: int | list[int], *, priority: int = 0, salt: str = "", **params: object
    ) -> list[ChoiceOutput]:
        """Add a request; a number makes a prompt of so many tokens that no other prompt has in common."""
        token_ids = prompt if isinstance(prompt, list) else [ord(name[0]) * 1000 + i for i in range(prompt)]
        outputs = self.scheduler.add(
            EngineRequest(
                request_id=name,
                prompt_token_ids=token_ids,
                params=SamplingParams(**{"ignore_eos": True, **params}),  # type: ignore[arg-type]
                arrival=0.0,
                priority=priority,
                cache_salt=salt,
            )
        )
        self.outputs.extend(outputs)
        return outputs

    def abort(self, name: str) -> list[ChoiceOutput]:
        return self.scheduler.abort(name, "cancelled")

    def plan(self) -> Schedule:
        schedule = self.scheduler.schedule()
        self.num_steps += 1
        assert schedule.num_tokens <= self.config.max_num_batched_tokens
        return schedule

    def finish(self, schedule: Schedule) -> list[ChoiceOutput]:
        """Update with sampled tokens and check the bookkeeping."""
        _, meanings = build_forward_batch(schedule, block_size=self.config.block_size)
        rows = sampling_rows(schedule, meanings)
        outputs = self.scheduler.update(schedule, rows, [self._sample(row) for row in rows])
        self.num_computed_tokens += schedule.num_tokens
        self.outputs.extend(outputs)
        self.blocks.check_invariants(self.scheduler.running)
        return outputs

    def step(self) -> list[str]:
        """Take one step and return who computed what: `a:4` is a chunk of 4 tokens, `a.` a decode."""
        schedule = self.plan()
        shares = [
            f"{entry.seq.request_id}{f'/{entry.seq.index}' if entry.seq.index else ''}"
            + ("." if entry.is_decode else f":{entry.num_tokens}")
            for entry in schedule.entries
        ]
        self.finish(schedule)
        return shares

    def steps(self, count: int) -> list[list[str]]:
        return [self.step() for _ in range(count)]

    def run(self, *, max_steps: int) -> int:
        """Step until nothing is left; return the number of steps."""
        first = self.num_steps
        while self.scheduler.has_work:
            assert self.num_steps - first < max_steps, f"running {self.scheduler.running} after {max_steps} steps"
            self.step()
        counts = self.blocks.counts
        assert (counts.referenced, counts.free + counts.cached) == (0, self.config.num_kv_blocks)
        return self.num_steps - first

    def drain(self) -> list[Event]:
        return list(self._log.drain())

    def events(self, *kinds: type[Event]) -> list[str]:
        """Return what was said since the last call, one line an event, of these kinds if any are given."""
        return [spell(event) for event in self._log.drain() if not kinds or isinstance(event, kinds)]

    def tokens(self, name: str, index: int = 0) -> list[int]:
        return [t for out in self.outputs if (out.request_id, out.index) == (name, index) for t in out.token_ids]

    def ends(self) -> dict[str, str]:
        """Return the finish reasons, by `id` or `id/index`."""
        return {
            f"{out.request_id}/{out.index}" if out.index else out.request_id: out.finish_reason
            for out in self.outputs
            if out.finish_reason
        }
