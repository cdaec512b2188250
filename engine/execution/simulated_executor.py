"""An executor without a model: it emits scripted tokens and checks every KV slot it is told to read.

For tests, process tests and simulation. Its logits are the *histories* of the rows (shadow_kv.py) as found through
the block tables, so a wrong block table changes the tokens, and with the shadow on it raises before that. Tokens come
from a TokenScript, by default a hash of history and choice index: equal inputs give equal outputs however they were
batched, chunked, cached or preempted, so an equivalence can be tested without a model.
"""

import threading
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass

from engine.clock import ManualClock
from engine.execution.executor import ModelRunner, SampledToken, SamplingRow
from engine.execution.forward_batch import ForwardBatch
from engine.execution.shadow_kv import HistoryCheck, ShadowKV, extend_history
from engine.messages import LogprobEntry, TokenLogprobs

Cue = Callable[[int, ForwardBatch], None]
"""Called before each execute with the number of the call (from 1) and its batch; may raise, wait or move a clock."""

TokenScript = Callable[[SamplingRow, int], int]
"""Chooses a row's token, given the history of the tokens before it."""

GATE_TIMEOUT_S = 30.0


class ScriptedFailureError(RuntimeError):
    """The failure that a cue was asked for."""


@dataclass(frozen=True, slots=True)
class ScriptedLogits:
    """What the scripted executor returns: one number per row of `logits_rows`, the history it attended to."""

    histories: tuple[int, ...]


class ScriptedExecutor:
    """Executes a batch by checking it.

    Args:
        num_blocks: blocks of the pool.
        block_size: tokens per block.
        cues: called in order before each step.
        verify_kv: keep a ShadowKV and raise ShadowKVError on any wrong read or write. Off, the histories are left
            to the sampler, and a step costs next to nothing (large simulations).
    """

    def __init__(self, *, num_blocks: int, block_size: int, cues: Many[Cue] = (), verify_kv: bool = True) -> None:
        self._shadow = ShadowKV(num_blocks=num_blocks, block_size=block_size) if verify_kv else None
        self._cues = tuple(cues)
        self.num_calls = 0

    @property
    def name(self) -> str:
        return "scripted"

    def execute(self, batch: ForwardBatch) -> ScriptedLogits:
        """Run the cues, then the step on the shadow KV; returns the histories of the batch's logits rows."""
        self.num_calls += 1
        for cue in self._cues:
            cue(self.num_calls, batch)
        if self._shadow is None:
            return ScriptedLogits(histories=())
        histories = self._shadow.run(batch)
        return ScriptedLogits(histories=tuple(histories[batch.logits_rows].tolist()))


class ScriptedSampler:
    """Reads ScriptedLogits: checks that each row attended to its own sequence, then asks the script.

    Args:
        script: chooses the tokens.
        row_errors: request_id -> how many output tokens it gets before its row fails as a NaN would; read anew for
            every row.
    """

    def __init__(self, script: TokenScript, *, row_errors: Mapping[str, int] | None = None) -> None:
        self._script = script
        self._row_errors = {} if row_errors is None else row_errors
        self._check = HistoryCheck()

    def sample(self, logits: ScriptedLogits, rows: Many[SamplingRow]) -> list[SampledToken]:
        """Return one token per row; raises ShadowKVError when a row's KV isn't its sequence's own prefix."""
        return [self._sample(logits, row) for row in rows]

    def _sample(self, logits: ScriptedLogits, row: SamplingRow) -> SampledToken:
        history = self._check.history_before(row.seq, row.position)
        if logits.histories:
            self._check.require(row.seq, position=row.position, found=logits.histories[row.logits_row])
        if row.given_token >= 0:
            return SampledToken(row.given_token, logprobs=_logprobs(history, row.given_token))
        failing_at = self._row_errors.get(row.seq.request_id)
        if failing_at is not None and row.position >= row.seq.num_prompt_tokens + failing_at:
            return SampledToken(-1, error=f"logits at position {row.position} contain NaN")
        token_id = self._script(row, history)
        return SampledToken(token_id, logprobs=_logprobs(history, token_id) if row.seq.params.logprobs >= 0 else None)


def _logprobs(history: int, token_id: int) -> TokenLogprobs:
    entry = LogprobEntry(token_id, -(extend_history(history, token_id) % 4096) / 512)
    return TokenLogprobs(chosen=entry, top=[])


def hashed_tokens(vocab_size: int) -> TokenScript:
    """Choose by a hash of history and choice index; every token of the vocabulary can come."""

    def script(row: SamplingRow, history: int) -> int:
        return hashed_token(history, row.index, vocab_size)

    return script


def hashed_token(history: int, index: int, vocab_size: int) -> int:
    """Return what hashed_tokens chooses, for plain models that predict whole outputs."""
    return (extend_history(history, -1 - index & 0xFFFF) >> 17) % vocab_size


def listed_tokens(outputs: Mapping[str, Many[int]]) -> TokenScript:
    """Emit, for each request id, its list; raises LookupError when a request runs past its list or has none."""
    lists = {request_id: tuple(tokens) for request_id, tokens in outputs.items()}

    def script(row: SamplingRow, history: int) -> int:
        place = row.position - row.seq.num_prompt_tokens
        tokens = lists.get(row.seq.request_id, ())
        if place >= len(tokens):
            raise LookupError(f"the script of {row.seq.request_id!r} has {len(tokens)} tokens, asked for {place + 1}")
        return tokens[place]

    return script


def fail_on_call(number: int) -> Cue:
    """Make the `number`-th execute (from 1) raise ScriptedFailureError."""

    def cue(call: int, batch: ForwardBatch) -> None:
        if call == number:
            raise ScriptedFailureError(f"scripted failure of step {call} with {batch.num_tokens} tokens")

    return cue


def linear_cost(clock: ManualClock, *, step_s: float, token_s: float) -> Cue:
    """Advance `clock` by `step_s` a step plus `token_s` a token."""

    def cue(call: int, batch: ForwardBatch) -> None:
        clock.advance(step_s + token_s * batch.num_tokens)

    return cue


class Gate:
    """A cue that holds one step inside execute until it is released, to act in the middle of a forward pass.

    Args:
        number: which call to hold (from 1).
        timeout_s: real seconds after which a gate that nobody opens raises ScriptedFailureError.
    """

    def __init__(self, number: int = 1, *, timeout_s: float = GATE_TIMEOUT_S) -> None:
        self._number = number
        self._timeout_s = timeout_s
        self.entered = threading.Event()
        self.released = threading.Event()

    def __call__(self, call: int, batch: ForwardBatch) -> None:
        if call != self._number:
            return
        self.entered.set()
        if not self.released.wait(self._timeout_s):
            raise ScriptedFailureError(f"nobody opened the gate of step {call} within {self._timeout_s} s")


def scripted_runner(
    *,
    num_blocks: int,
    block_size: int,
    script: TokenScript,
    cues: Many[Cue] = (),
    row_errors: Mapping[str, int] | None = None,
    verify_kv: bool = True,
) -> ModelRunner[ScriptedLogits]:
    """Return executor and sampler that belong together; see their classes for the arguments."""
    return ModelRunner(
        executor=ScriptedExecutor(num_blocks=num_blocks, block_size=block_size, cues=cues, verify_kv=verify_kv),
        sampler=ScriptedSampler(script, row_errors=row_errors),
    )
