"""RowSampler: logits in, tokens out, whatever kind of array the logits are."""

from collections.abc import Sequence as Many
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.execution.executor import SampledToken, SamplingRow
from engine.messages import TokenLogprobs
from engine.sampling.bans import apply_bans, has_bans
from engine.sampling.logprobs import report_logprobs
from engine.sampling.penalties import Penalties
from engine.sampling.randomness import uniforms
from engine.sampling_params import GREEDY_BELOW, SamplingParams

Scores = TypeVar("Scores")


class ScoreArrays(Protocol[Scores]):
    """What the sampler asks of one kind of array; float32 [num_rows, vocab_size] throughout."""

    def best(self, scores: Scores) -> tuple[list[int], list[float]]:
        """Return each row's best token and its score; the lowest id wins a tie, and NaN counts as the best score."""
        ...

    def on_host(self, scores: Scores, rows: Many[int]) -> NDArray[np.float32]:
        """Return a copy of some rows as a NumPy array."""
        ...

    def from_host(self, rows: NDArray[np.float32], like: Scores) -> Scores:
        """Return rows as an array of this kind, beside `like`."""
        ...

    def draw(
        self, scores: Scores, rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
    ) -> list[int]:
        """Return a token of scores[rows[i]] for each i, chosen by params[i] and uniforms[i]; scores stay as they are.

        The rows hold no NaN and their largest score is finite; temperatures are at least GREEDY_BELOW.
        """
        ...


class RowSampler(Generic[Scores]):
    """Choose tokens. Order: bias and bans, penalties, temperature, top-k, top-p, min-p, draw.

    Greedy rows without bias, bans and penalties cost one argmax over the batch; the lowest id wins a tie. Bias, bans,
    penalties and log probabilities are computed in NumPy, on the rows that ask for them.

    Args:
        arrays: of the executor's logits.
        eos_token_ids: the model's end-of-sequence ids, banned while a request's `min_tokens` is not reached.
    """

    def __init__(self, arrays: ScoreArrays[Scores], eos_token_ids: Many[int]) -> None:
        self._arrays = arrays
        self._eos_token_ids = tuple(eos_token_ids)
        self._penalties = Penalties()

    def sample(self, logits: Scores, rows: Many[SamplingRow]) -> list[SampledToken]:
        """Return one outcome a row; `logits` float32 [num_logits, vocab_size] is not changed.

        A row with NaN, with +inf, or with every token banned gets an `error`; the other rows are unaffected.
        """
        if not rows:
            return []
        best_of_row, peak_of_row = self._arrays.best(logits)  # the peak is NaN where a row has one
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
        reports = self._report(logits, rows, tokens, errors)
        return [
            SampledToken(token_id=-1, error=error) if error else SampledToken(token_id=token, logprobs=report)
            for token, error, report in zip(tokens, errors, reports, strict=True)
        ]

    def _draw_rows(self, scores: Scores, places: list[int], rows: list[SamplingRow]) -> list[int]:
        params = [row.seq.params for row in rows]
        numbers = uniforms([p.seed for p in params], [row.index for row in rows], [row.position for row in rows])
        return self._arrays.draw(scores, places, params, numbers)

    def _choose_changed(
        self, logits: Scores, rows: list[SamplingRow], places: list[int], tokens: list[int], errors: list[str]
    ) -> None:
        """Fill in tokens and errors at `places` for rows with bias, bans or penalties."""
        changed = self._arrays.on_host(logits, [row.logits_row for row in rows])
        apply_bans(changed, rows, eos_token_ids=self._eos_token_ids)
        self._penalties.apply(changed, rows)
        scores = self._arrays.from_host(changed, logits)
        best, peaks = self._arrays.best(scores)
        drawn: list[int] = []
        for i, (place, token) in enumerate(zip(places, best, strict=True)):
            tokens[place] = token
            if peaks[i] == -np.inf:
                errors[place] = f"every token is banned at position {rows[i].position}"
            elif _is_drawn(rows[i].seq.params):
                drawn.append(i)
        if drawn:
            for i, token in zip(drawn, self._draw_rows(scores, drawn, [rows[i] for i in drawn]), strict=True):
                tokens[places[i]] = token

    def _report(
        self, logits: Scores, rows: Many[SamplingRow], tokens: list[int], errors: list[str]
    ) -> list[TokenLogprobs | None]:
        reports: list[TokenLogprobs | None] = [None] * len(rows)
        wanted = [row.seq.params.logprobs if row.given_token < 0 else row.seq.params.prompt_logprobs for row in rows]
        asked = [i for i, count in enumerate(wanted) if count >= 0 and not errors[i]]
        if asked:
            picked = self._arrays.on_host(logits, [rows[i].logits_row for i in asked])
            found = report_logprobs(picked, [tokens[i] for i in asked], [wanted[i] for i in asked])
            for i, report in zip(asked, found, strict=True):
                reports[i] = report
        return reports


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
