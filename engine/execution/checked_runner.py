"""A real executor and sampler with the shadow KV beside them: every slot read and written is checked first.

For tests of real executors under pressure, and for looking for a fault in a running engine: the numbers that come out
are the real executor's own, and a wrong block table raises before it can become fluent wrong text.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.execution.executor import Executor, ModelRunner, SampledToken, Sampler, SamplingRow
from engine.execution.forward_batch import ForwardBatch
from engine.execution.shadow_kv import HistoryCheck, ShadowKV

Logits = TypeVar("Logits")


@dataclass(frozen=True, slots=True)
class CheckedLogits(Generic[Logits]):
    """The real logits, and for each row the history that its KV tells."""

    logits: Logits
    histories: tuple[int, ...]


class CheckedExecutor(Generic[Logits]):
    """Runs each batch on a ShadowKV, then on the real executor.

    Args:
        inner: the executor that computes.
        num_blocks, block_size: of its pool, whose slots nobody has written yet.
    """

    def __init__(self, inner: Executor[Logits], *, num_blocks: int, block_size: int) -> None:
        self._inner = inner
        self._shadow = ShadowKV(num_blocks=num_blocks, block_size=block_size)

    @property
    def name(self) -> str:
        return f"checked {self._inner.name}"

    def execute(self, batch: ForwardBatch) -> CheckedLogits[Logits]:
        """Raise ShadowKVError on a wrong batch, before anything is computed; else see Executor.execute."""
        histories = self._shadow.run(batch)
        logits = self._inner.execute(batch)
        return CheckedLogits(logits, tuple(histories[batch.logits_rows].tolist()))


class CheckedSampler(Generic[Logits]):
    """Checks that each row attended to its own sequence, then lets the real sampler choose."""

    def __init__(self, inner: Sampler[Logits]) -> None:
        self._inner = inner
        self._check = HistoryCheck()

    def sample(self, logits: CheckedLogits[Logits], rows: Many[SamplingRow]) -> list[SampledToken]:
        """Raise ShadowKVError when a row's KV is another sequence's; else see Sampler.sample."""
        for row in rows:
            self._check.require(row.seq, position=row.position, found=logits.histories[row.logits_row])
        return self._inner.sample(logits.logits, rows)


def checked_runner(
    runner: ModelRunner[Logits], *, num_blocks: int, block_size: int
) -> ModelRunner[CheckedLogits[Logits]]:
    """Return a runner that computes what `runner` does, over the checks."""
    return ModelRunner(
        executor=CheckedExecutor(runner.executor, num_blocks=num_blocks, block_size=block_size),
        sampler=CheckedSampler(runner.sampler),
    )
