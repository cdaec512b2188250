"""The two protocols between the scheduler's world and the tensor world."""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from engine.execution.forward_batch import ForwardBatch
from engine.messages import TokenLogprobs
from engine.sequence import Sequence

Logits = TypeVar("Logits")
Logits_co = TypeVar("Logits_co", covariant=True)
Logits_contra = TypeVar("Logits_contra", contravariant=True)


class Executor(Protocol[Logits_co]):
    """Runs the model over a paged KV cache that it owns."""

    @property
    def name(self) -> str:
        """`torch`, `reference`, `native`, `scripted` ..."""
        ...

    def execute(self, batch: ForwardBatch) -> Logits_co:
        """Do the block copies, write this step's K and V, attend, and return logits.

        Returns float32 [num_logits, vocab_size] in the order of `batch.logits_rows`, in the executor's own array
        type (the sampler of the same family reads it). The result is valid until the next call.
        """
        ...


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """One token to choose, or one prompt position to report.

    Attributes:
        logits_row: which row of the logits.
        seq: whose history and parameters apply. A request with n > 1 samples its first token n times from one row,
            with `index` 0..n-1.
        index: the choice for which this is drawn; part of the randomness counter.
        position: position of the token being predicted; part of the randomness counter.
        given_token: -1 to sample; else the prompt token at `position`, whose log probability is reported.
    """

    logits_row: int
    seq: Sequence
    index: int
    position: int
    given_token: int = -1


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The outcome of one SamplingRow.

    Attributes:
        token_id: the chosen (or given) token; -1 when `error` says why there is none.
        logprobs: filled when the sequence asks for them.
        error: e.g. "logits at position 17 contain NaN"; only this sequence is affected.
    """

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str = ""


class Sampler(Protocol[Logits_contra]):
    """Turns logits into tokens; a row's result depends on no other row."""

    def sample(self, logits: Logits_contra, rows: Many[SamplingRow]) -> list[SampledToken]: ...


@dataclass(frozen=True, slots=True)
class ModelRunner(Generic[Logits]):
    """An executor with the sampler that reads its logits."""

    executor: Executor[Logits]
    sampler: Sampler[Logits]
