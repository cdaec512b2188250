"""How long steps take in an engine without a service around it, read off its own events."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from engine.events import AnyEvent, StepFinished
from engine.llm import LLM
from engine.sampling_params import SamplingParams
from loadtest.prompts import PromptSource

CONTEXT = 128
DECODES = (1, 8, 32)
PREFILL = 512


@dataclass(frozen=True, slots=True)
class StepPoint:
    """Steps of one shape.

    Attributes:
        name: e.g. `decode 8`.
        num_tokens: rows of each step.
        num_logits: rows with logits.
        num_kv_tokens: attended to in the median step, all sequences together.
        execute_s: of each step, the executor alone.
        step_s: of each step, scheduling, sampling and bookkeeping included.
    """

    name: str
    num_tokens: int
    num_logits: int
    num_kv_tokens: int
    execute_s: list[float]
    step_s: list[float]

    @property
    def execute_median_s(self) -> float:
        return statistics.median(self.execute_s)

    @property
    def step_median_s(self) -> float:
        return statistics.median(self.step_s)


def measure_decode(llm: LLM, prompts: PromptSource, num_seqs: int, *, num_steps: int) -> StepPoint:
    """Let `num_seqs` requests decode together and return at least `num_steps` of their common steps."""
    budget = max(1, llm.info.max_num_batched_tokens - num_seqs)  # what decodes leave of it
    num_prefill_steps = -(-num_seqs * CONTEXT // budget)
    params = SamplingParams(max_tokens=num_steps + num_prefill_steps + 2, temperature=0.0, ignore_eos=True)
    llm.generate([list(prompt) for prompt in prompts.take_many(num_seqs, CONTEXT)], params)
    steps = [
        event
        for event in _steps(llm.events)
        if event.num_decode_seqs == num_seqs and not event.num_prefill_tokens and event.num_decode_tokens == num_seqs
    ]
    context = CONTEXT + num_prefill_steps + len(steps) // 2
    return _point(f"decode {num_seqs}", steps, num_seqs, num_logits=num_seqs, num_kv_tokens=num_seqs * context)


def measure_prefill(llm: LLM, prompts: PromptSource, num_tokens: int, *, num_steps: int) -> StepPoint:
    """Let prompts of `num_tokens` tokens be computed, each in a step of its own."""
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    steps: list[StepFinished] = []
    for _ in range(num_steps):
        llm.generate([prompts.take(num_tokens)], params)
        steps += [event for event in _steps(llm.events) if event.num_prefill_tokens == num_tokens]
    return _point(f"prefill {num_tokens}", steps, num_tokens, num_logits=1, num_kv_tokens=num_tokens)


def _steps(events: Iterable[AnyEvent]) -> list[StepFinished]:
    return [event for event in events if isinstance(event, StepFinished)]


def _point(name: str, steps: list[StepFinished], num_tokens: int, *, num_logits: int, num_kv_tokens: int) -> StepPoint:
    return StepPoint(
        name,
        num_tokens,
        num_logits,
        num_kv_tokens,
        [step.execute_s for step in steps],
        [step.schedule_s + step.execute_s + step.sample_s + step.update_s for step in steps],
    )
