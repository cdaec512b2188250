"""What the sampler's answers mean for one request: new tokens, the end of a choice, prompt log probabilities."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

from engine.execution.executor import SampledToken, SamplingRow
from engine.messages import TokenLogprobs
from engine.request_ledger import RequestRecord
from engine.sequence import FinishReason, Sequence


@dataclass(frozen=True, slots=True)
class PrefillResults:
    """What a prefill chunk gave.

    Attributes:
        prompt_logprobs: of positions not reported before.
        tokens: by choice, the first tokens; empty unless it was the last chunk.
    """

    prompt_logprobs: list[TokenLogprobs]
    tokens: dict[int, list[SampledToken]]


def sort_prefill_results(record: RequestRecord, rows: Many[SamplingRow], results: Many[SampledToken]) -> PrefillResults:
    """Tell prompt log probabilities from first tokens; positions that a repeated prefill computes again are dropped."""
    prompt_logprobs: list[TokenLogprobs] = []
    tokens: dict[int, list[SampledToken]] = {}
    for row, result in zip(rows, results, strict=True):
        if row.given_token < 0:
            tokens.setdefault(row.index, []).append(result)
        elif row.position > record.num_prompt_logprobs:
            assert result.logprobs is not None, f"prompt position {row.position} came without log probabilities"
            record.num_prompt_logprobs = row.position
            prompt_logprobs.append(result.logprobs)
    return PrefillResults(prompt_logprobs, tokens)


def append_tokens(seq: Sequence, results: Many[SampledToken]) -> tuple[list[int], FinishReason | None]:
    """Append sampled tokens to a choice, up to the one that ends it; return what was appended, and why it ended.

    A stop token counts as output, and as a stop even where the length limit falls on it.
    """
    output, stop_ids, limit = seq.output_token_ids, seq.stop_ids, seq.max_output_tokens
    new: list[int] = []
    for result in results:
        token_id = result.token_id
        new.append(token_id)
        output.append(token_id)
        if token_id in stop_ids:
            return new, FinishReason.STOP
        if len(output) >= limit:
            return new, FinishReason.LENGTH
    return new, None
