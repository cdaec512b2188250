"""The sampler, over tensors and over arrays in memory: rules, penalties, faults, log probabilities, reproducibility."""

import math
from collections.abc import Sequence as Many

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.execution.executor import SampledToken, SamplingRow
from engine.sampling.draw import draw_rows
from engine.sampling.host_scores import host_sampler
from engine.sampling.sampler import TorchSampler
from engine.sampling_params import SamplingParams
from tests.support.sampling_rows import sampling_row

VOCAB = 50
EOS = 2
GREEDY = SamplingParams(temperature=0.0)


def draw_on_host(
    scores: NDArray[np.float32], rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
) -> list[int]:
    return draw_rows(torch.from_numpy(scores), rows, params, uniforms)


class BothSamplers:
    """Samples with either kind of array; both must say the same and leave the logits as they are."""

    def __init__(self) -> None:
        self._torch, self._host = TorchSampler(VOCAB, (EOS,)), host_sampler(VOCAB, (EOS,), draw_on_host)

    def sample(self, logits: torch.Tensor, rows: Many[SamplingRow]) -> list[SampledToken]:
        before = logits.clone()
        outcome = self._torch.sample(logits, rows)
        assert outcome == self._host.sample(logits.numpy(), rows)
        assert torch.equal(logits.view(torch.int32), before.view(torch.int32))
        return outcome


def sampler() -> BothSamplers:
    return BothSamplers()


def descending() -> torch.Tensor:
    """One row in which token 0 is best, 1 is second ..., a tenth apart."""
    return -torch.arange(VOCAB, dtype=torch.float32)[None] / 10


def greedy(
    logits: torch.Tensor, *, prompt: tuple[int, ...] = (1, 2, 3), output: tuple[int, ...] = (), **kw: object
) -> int:
    params = SamplingParams(temperature=0.0, max_tokens=100, **kw)  # type: ignore[arg-type]
    return sampler().sample(logits, [sampling_row(0, params, prompt=prompt, output=output)])[0].token_id


# --- greedy and faults


def test_sampler_greedy_tie_goes_to_lowest_id() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [7, 31]] = 1.0
    assert greedy(logits) == 7


def test_sampler_no_rows_gives_nothing() -> None:
    assert sampler().sample(torch.empty(0, VOCAB), []) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [(math.nan, "logits at position 5 contain NaN"), (math.inf, "logits at position 5 contain infinity")],
)
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(), SamplingParams(top_k=4, logprobs=2)], ids=str)
def test_sampler_bad_row_fails_alone(value: float, message: str, params: SamplingParams) -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    rows = [sampling_row(i, params, prompt=(1, 2, 3), output=(4, 5)) for i in range(3)]
    clean = sampler().sample(logits, rows)
    logits[1, 17] = value
    outcome = sampler().sample(logits, rows)
    assert outcome[1] == SampledToken(token_id=-1, error=message)
    assert [outcome[0], outcome[2]] == [clean[0], clean[2]]


def test_sampler_row_of_minus_infinity_fails_alone() -> None:
    logits = torch.stack((torch.full((VOCAB,), -torch.inf), descending()[0]))
    outcome = sampler().sample(logits, [sampling_row(0, GREEDY), sampling_row(1, GREEDY)])
    assert outcome[0].error == "logits at position 3 are all minus infinity"
    assert outcome[1] == SampledToken(token_id=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sampler_row_with_every_token_banned_fails_alone(temperature: float) -> None:
    banned = SamplingParams(temperature=temperature, allowed_token_ids=(9,), bad_words=((9,),))
    logits = descending().repeat(2, 1)
    outcome = sampler().sample(logits, [sampling_row(0, banned), sampling_row(1, GREEDY)])
    assert outcome[0].error == "every token is banned at position 3"
    assert outcome[1] == SampledToken(token_id=0)


def test_sampler_given_logits_are_not_changed() -> None:
    logits = descending()
    params = SamplingParams(logit_bias=((4, 50.0),), repetition_penalty=2.0, presence_penalty=1.0, top_k=3, logprobs=3)
    sampler().sample(logits, [sampling_row(0, params, output=(4,))])
    assert torch.equal(logits, descending())


# --- bias and bans


def test_sampler_logit_bias_is_added() -> None:
    assert greedy(descending(), logit_bias=((30, 3.05),)) == 30
    assert greedy(descending(), logit_bias=((30, 2.95),)) == 0
    assert greedy(descending(), logit_bias=((0, -100.0), (1, -100.0))) == 2


def test_sampler_allowed_token_ids_exclude_all_others() -> None:
    assert greedy(descending(), allowed_token_ids=(40, 33)) == 33


def test_sampler_min_tokens_bans_eos_and_stop_ids_until_reached() -> None:
    logits = descending()
    logits[0, EOS], logits[0, 8] = 9.0, 8.0
    kw = {"min_tokens": 2, "stop_token_ids": (8,)}
    assert greedy(logits, output=(5,), **kw) == 0
    assert greedy(logits, output=(5, 5), **kw) == EOS
    assert greedy(logits, output=(5,), ignore_eos=True, **kw) == EOS


def test_sampler_bad_word_is_banned_only_when_it_would_be_completed() -> None:
    words = {"bad_words": ((7, 8, 0), (1,))}
    assert greedy(descending(), output=(7, 8), **words) == 2
    assert greedy(descending(), output=(8, 7), **words) == 0
    assert greedy(descending(), prompt=(5, 7), output=(8,), **words) == 2
    assert greedy(descending(), prompt=(8,), **words) == 0


# --- penalties


def test_sampler_presence_and_frequency_see_generated_tokens_only() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 7], logits[0, 9] = 2.0, 1.0
    assert greedy(logits, prompt=(7, 7, 7), presence_penalty=2.0) == 7
    assert greedy(logits, prompt=(7, 7, 7), frequency_penalty=2.0) == 7
    assert greedy(logits, output=(7,), presence_penalty=1.01) == 9
    assert greedy(logits, output=(7, 7, 7), presence_penalty=0.99) == 7
    assert greedy(logits, output=(7, 7, 7), frequency_penalty=0.34) == 9
    assert greedy(logits, output=(7, 7), frequency_penalty=0.34) == 7
    assert greedy(logits, output=(9,), presence_penalty=-1.5) == 9


def test_sampler_repetition_penalty_sees_prompt_and_output() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 7], logits[0, 9] = 2.0, 1.5
    assert greedy(logits, prompt=(7, 7), repetition_penalty=1.4) == 9
    assert greedy(logits, prompt=(1,), output=(7,), repetition_penalty=1.4) == 9
    assert greedy(logits, prompt=(7,), repetition_penalty=1.3) == 7
    assert greedy(logits, prompt=(7, 9), repetition_penalty=1.4) == 7


def test_sampler_repetition_penalty_multiplies_negative_scores() -> None:
    logits = torch.full((1, VOCAB), -3.0)
    logits[0, 7] = -1.0
    assert greedy(logits, prompt=(7,), repetition_penalty=2.9) == 7
    assert greedy(logits, prompt=(7,), repetition_penalty=3.1) == 0


@pytest.mark.parametrize("penalty", [1e-300, 1e-3, 1000.0])
def test_sampler_extreme_repetition_penalty_gives_no_nan(penalty: float) -> None:
    logits = descending()
    logits[0, 4] = 3.0
    params = SamplingParams(repetition_penalty=penalty, bad_words=((4,),), temperature=0.7, top_p=0.9)
    outcome = sampler().sample(logits, [sampling_row(0, params, prompt=(4, 3, 1))])[0]
    assert outcome.error == ""
    assert outcome.token_id != 4


def test_sampler_penalties_after_preemption_still_split_at_the_prompt() -> None:
    """A resumed sequence recomputes prompt and output as one prefill; the penalties see what they saw before."""
    logits = torch.zeros(1, VOCAB)
    logits[0, 7], logits[0, 9] = 2.0, 1.0
    params = SamplingParams(temperature=0.0, presence_penalty=1.5)
    row = sampling_row(0, params, prompt=(7, 7), output=(5, 6))
    row.seq.num_preemptions, row.seq.num_computed_tokens = 1, 0
    assert sampler().sample(logits, [row])[0].token_id == 7


# --- log probabilities


def test_sampler_logprobs_are_of_the_raw_distribution() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, :3] = torch.tensor([3.0, 2.0, 1.0])
    params = SamplingParams(temperature=0.0, logprobs=3, logit_bias=((1, 9.0),), presence_penalty=2.0)
    report = sampler().sample(logits, [sampling_row(0, params, output=(0,))])[0].logprobs
    assert report is not None
    normaliser = math.log(math.exp(3) + math.exp(2) + math.exp(1) + VOCAB - 3)
    assert (report.chosen.token_id, report.chosen.logprob) == (1, pytest.approx(2 - normaliser))
    assert [entry.token_id for entry in report.top] == [0, 1, 2]
    assert [entry.logprob for entry in report.top] == pytest.approx([3 - normaliser, 2 - normaliser, 1 - normaliser])


def test_sampler_logprobs_zero_reports_the_chosen_token_alone() -> None:
    params = [SamplingParams(temperature=0.0, logprobs=count) for count in (-1, 0, 2, VOCAB + 5)]
    rows = [sampling_row(0, one) for one in params]
    reports = [token.logprobs for token in sampler().sample(descending(), rows)]
    assert reports[0] is None
    assert [len(report.top) for report in reports[1:] if report is not None] == [0, 2, VOCAB]


def test_sampler_given_token_is_reported_not_drawn() -> None:
    params = SamplingParams(temperature=1.0, prompt_logprobs=1, logprobs=-1, logit_bias=((5, 100.0),))
    row = sampling_row(0, params, prompt=(1, 41, 3), position=1, given_token=41)
    outcome = sampler().sample(descending(), [row])[0]
    assert outcome.token_id == 41
    assert outcome.logprobs is not None
    expected = torch.log_softmax(descending()[0], dim=-1)
    assert outcome.logprobs.chosen.logprob == pytest.approx(float(expected[41]), abs=1e-6)
    assert [entry.token_id for entry in outcome.logprobs.top] == [0]


# --- reproducibility


def test_sampler_seeded_row_is_the_same_alone_batched_and_at_any_row() -> None:
    generator = torch.Generator().manual_seed(3)
    mine = torch.randn(VOCAB, generator=generator)
    params = SamplingParams(seed=42, temperature=0.8, logprobs=1)
    alone = sampler().sample(mine[None], [sampling_row(0, params)])[0]
    mates = [GREEDY, SamplingParams(seed=9, top_k=3), SamplingParams(seed=1, top_p=0.5), SamplingParams(min_p=0.2)]
    for place in range(5):
        logits = torch.randn(5, VOCAB, generator=generator)
        logits[place] = mine
        settings = [*mates[:place], params, *mates[place:]]
        rows = [sampling_row(i, one) for i, one in enumerate(settings)]
        assert sampler().sample(logits, rows)[place] == alone


def test_sampler_n_choices_from_one_row_are_those_of_single_draws() -> None:
    logits = torch.zeros(1, VOCAB)
    params = SamplingParams(seed=5, n=40)
    rows = [sampling_row(0, params, index=index) for index in range(40)]
    together = [token.token_id for token in sampler().sample(logits, rows)]
    assert together == [sampler().sample(logits, [row])[0].token_id for row in rows]
    assert len(set(together)) > 10


def test_sampler_different_seeds_and_positions_differ() -> None:
    logits = torch.zeros(1, VOCAB)
    by_seed = {sampler().sample(logits, [sampling_row(0, SamplingParams(seed=s))])[0].token_id for s in range(30)}
    by_position = {
        sampler().sample(logits, [sampling_row(0, SamplingParams(), output=(1,) * k)])[0].token_id for k in range(30)
    }
    assert len(by_seed) > 10
    assert len(by_position) > 10


def test_sampler_extreme_settings_in_one_batch_with_a_greedy_row() -> None:
    settings = [
        GREEDY,
        SamplingParams(temperature=1e6),
        SamplingParams(temperature=1e-7),
        SamplingParams(temperature=5e-324),
        SamplingParams(top_k=9_999_999),
        SamplingParams(top_k=1, temperature=2.0),
        SamplingParams(top_p=1e-300),
        SamplingParams(min_p=1.0),
    ]
    for one in settings:
        one.validate(vocab_size=VOCAB)
    logits = descending().repeat(len(settings), 1)
    outcome = sampler().sample(logits, [sampling_row(i, one) for i, one in enumerate(settings)])
    assert all(not token.error and 0 <= token.token_id < VOCAB for token in outcome)
    assert [outcome[i].token_id for i in (0, 2, 3, 5, 6, 7)] == [0] * 6
