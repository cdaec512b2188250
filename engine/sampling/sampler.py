"""TorchSampler: logits in, tokens out, for the executors whose logits are torch tensors."""

from collections.abc import Sequence as Many
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.execution.executor import SampledToken, SamplingRow
from engine.messages import TokenLogprobs
from engine.sampling.bans import apply_bans, has_bans
from engine.sampling.draw import GREEDY_BELOW, draw_rows
from engine.sampling.logprobs import report_logprobs
from engine.sampling.ordering import best_token
from engine.sampling.penalties import Penalties
from engine.sampling.randomness import uniforms
from engine.sampling_params import SamplingParams


class Draw(Protocol):
    """Chooses a token for each of some rows of scores, each by its own settings and uniform number."""

    def __call__(
        self, scores: torch.Tensor, rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
    ) -> list[int]:
        """Return a token of scores[rows[i]] for each i; scores float32 [num_rows, vocab_size] stays as it is.

        The rows hold no NaN and their largest score is finite; temperatures are at least GREEDY_BELOW.
        """
        ...


class TorchSampler:
    """Choose tokens. Order: bias and bans, penalties, temperature, top-k, top-p, min-p, draw.

    Greedy rows without bias, bans and penalties cost one argmax over the batch; the lowest id wins a tie.

    Args:
        vocab_size: of the logits.
        eos_token_ids: the model's end-of-sequence ids, banned while a request's `min_tokens` is not reached.
        draw: torch's on any device, if no faster one is given.
    """

    def __init__(self, vocab_size: int, eos_token_ids: Many[int], draw: Draw = draw_rows) -> None:
        self._draw = draw
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(token for token in eos_token_ids if token < vocab_size)
        self._penalties = Penalties()

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, rows: Many[SamplingRow]) -> list[SampledToken]:
        """Return one outcome a row; `logits` float32 [num_logits, vocab_size] is not changed.

        A row with NaN, with +inf, or with every token banned gets an `error`; the other rows are unaffected.
        """
        if not rows:
            return []
        best = best_token(logits)
        peaks = logits.gather(1, best[:, None])[:, 0]  # NaN where a row has one
        best_of_row, peak_of_row = best.tolist(), peaks.tolist()
        tokens = [row.given_token if row.given_token >= 0 else best_of_row[row.logits_row] for row in rows]
        errors = [_fault(peak_of_row[row.logits_row], row.position) for row in rows]
        chosen = [i for i, row in enumerate(rows) if row.given_token < 0 and not errors[i]]
        changed = [i for i in chosen if _changes_scores(rows[i].seq.params)]
        if changed:
            self._choose_changed(logits, [rows[i] for i in changed], changed, tokens, errors)
        drawn = [i for i in chosen if _is_drawn(rows[i].seq.params) and not _changes_scores(rows[i].seq.params)]
        if drawn:
            drawn_rows = [rows[i] for i in drawn]
            found = self._draw_rows(logits, [row.logits_row for row in drawn_rows], drawn_rows)
            for i, token in zip(drawn, found, strict=True):
                tokens[i] = token
        reports = _report(logits, rows, tokens, errors)
        return [
            SampledToken(token_id=-1, error=error) if error else SampledToken(token_id=token, logprobs=report)
            for token, error, report in zip(tokens, errors, reports, strict=True)
        ]

    def _draw_rows(self, scores: torch.Tensor, places: list[int], rows: list[SamplingRow]) -> list[int]:
        params = [row.seq.params for row in rows]
        numbers = uniforms([p.seed for p in params], [row.index for row in rows], [row.position for row in rows])
        return self._draw(scores, places, params, numbers)

    def _choose_changed(
        self, logits: torch.Tensor, rows: list[SamplingRow], places: list[int], tokens: list[int], errors: list[str]
    ) -> None:
        """Fill in tokens and errors at `places` for rows with bias, bans or penalties."""
        scores = logits[torch.tensor([row.logits_row for row in rows], device=logits.device)]
        apply_bans(scores, rows, eos_token_ids=self._eos_token_ids)
        self._penalties.apply(scores, rows)
        best = best_token(scores)
        peaks = scores.gather(1, best[:, None])[:, 0].tolist()
        drawn: list[int] = []
        for i, (place, token) in enumerate(zip(places, best.tolist(), strict=True)):
            tokens[place] = token
            if peaks[i] == -torch.inf:
                errors[place] = f"every token is banned at position {rows[i].position}"
            elif _is_drawn(rows[i].seq.params):
                drawn.append(i)
        if drawn:
            for i, token in zip(drawn, self._draw_rows(scores, drawn, [rows[i] for i in drawn]), strict=True):
                tokens[places[i]] = token


def _is_drawn(params: SamplingParams) -> bool:
    return params.temperature >= GREEDY_BELOW


def _changes_scores(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or bool(params.presence_penalty or params.frequency_penalty)
        or has_bans(params)
    )


def _fault(peak: float, position: int) -> str:
    if peak != peak:
        return f"logits at position {position} contain NaN"
    if peak == float("inf"):
        return f"logits at position {position} contain infinity"
    if peak == -float("inf"):
        return f"logits at position {position} are all minus infinity"
    return ""


def _report(
    logits: torch.Tensor, rows: Many[SamplingRow], tokens: list[int], errors: list[str]
) -> list[TokenLogprobs | None]:
    reports: list[TokenLogprobs | None] = [None] * len(rows)
    wanted = [row.seq.params.logprobs if row.given_token < 0 else row.seq.params.prompt_logprobs for row in rows]
    asked = [i for i, count in enumerate(wanted) if count >= 0 and not errors[i]]
    if asked:
        picked = logits[torch.tensor([rows[i].logits_row for i in asked], device=logits.device)]
        found = report_logprobs(picked, [tokens[i] for i in asked], [wanted[i] for i in asked])
        for i, report in zip(asked, found, strict=True):
            reports[i] = report
    return reports
