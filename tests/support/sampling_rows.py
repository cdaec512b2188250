"""SamplingRows made from plain values, for tests of the sampler."""

from collections.abc import Iterable

from engine.execution.executor import SamplingRow
from engine.sampling_params import SamplingParams
from engine.sequence import EngineRequest, Sequence


def sampling_row(
    logits_row: int,
    params: SamplingParams,
    *,
    prompt: Iterable[int] = (1, 2, 3),
    output: Iterable[int] = (),
    index: int = 0,
    given_token: int = -1,
    position: int = -1,
) -> SamplingRow:
    """Return the row that predicts the token after prompt + output, unless `position` says another."""
    request = EngineRequest(request_id=f"r{logits_row}", prompt_token_ids=list(prompt), params=params, arrival=0.0)
    seq = Sequence(request, index=index)
    seq.output_token_ids = list(output)
    return SamplingRow(
        logits_row=logits_row,
        seq=seq,
        index=index,
        position=seq.num_tokens if position < 0 else position,
        given_token=given_token,
    )
