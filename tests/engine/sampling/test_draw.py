"""The draw follows its distribution, and no row knows of another."""

import itertools

import numpy as np
import pytest
import torch

from engine.sampling.draw import draw
from engine.sampling.randomness import uniforms
from engine.sampling_params import SamplingParams

NUM_DRAWS = 20_000


def target(scores: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The distribution as the definitions say it, in float64."""
    weights = np.exp((scores - scores.max()) / params.temperature)
    order = np.argsort(-scores, kind="stable")
    ranked = weights[order]
    if params.top_k:
        ranked[params.top_k :] = 0
    ranked[np.cumsum(ranked) - ranked >= params.top_p * ranked.sum()] = 0
    ranked[ranked < params.min_p * ranked.max()] = 0
    probs = np.zeros_like(weights)
    probs[order] = ranked / ranked.sum()
    return probs


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.5),
        SamplingParams(temperature=3.0, min_p=0.3),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.7),
        SamplingParams(temperature=1.5, top_k=9, top_p=0.9, min_p=0.05),
        SamplingParams(top_k=1),
        SamplingParams(top_p=1e-9),
        SamplingParams(min_p=1.0),
    ],
    ids=str,
)
def test_draw_chi_square_matches_target_distribution(params: SamplingParams) -> None:
    scores = np.random.default_rng(5).normal(size=23).astype(np.float32) * 1.5
    expected = target(scores.astype(np.float64), params) * NUM_DRAWS
    numbers = torch.from_numpy(uniforms([11] * NUM_DRAWS, [0] * NUM_DRAWS, range(NUM_DRAWS)))
    tokens = draw(torch.from_numpy(scores).expand(NUM_DRAWS, -1), [params] * NUM_DRAWS, numbers).numpy()
    counts = np.bincount(tokens, minlength=23)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = ((counts[possible] - expected[possible]) ** 2 / expected[possible]).sum()
    assert chi_square < possible.sum() - 1 + 4 * np.sqrt(2 * possible.sum())


def test_draw_row_result_is_independent_of_batch_mates_and_place() -> None:
    settings = [
        SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        for temperature, top_k, top_p, min_p in itertools.product((0.3, 5.0), (0, 40, 10**7), (1.0, 0.9), (0.0, 0.02))
    ]
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(len(settings), 3001, generator=generator) * 2
    numbers = torch.rand(len(settings), generator=generator, dtype=torch.float64)
    together = draw(scores, settings, numbers).tolist()
    alone = [int(draw(scores[i : i + 1], [settings[i]], numbers[i : i + 1])) for i in range(len(settings))]
    backwards = draw(scores.flip(0), settings[::-1], numbers.flip(0)).tolist()
    assert together == alone == backwards[::-1]


def test_draw_nucleus_wider_than_first_candidates_is_complete() -> None:
    """Nearly flat scores: 90 % of the mass is 90 % of the tokens, and the last of them can be drawn."""
    scores = torch.linspace(0.01, 0.0, 6000)[None]
    params = [SamplingParams(top_p=0.9)]
    tokens = [int(draw(scores, params, torch.tensor([u], dtype=torch.float64))) for u in (0.0, 0.5, 1 - 2**-53)]
    assert tokens[0] == 0
    assert 2980 <= tokens[1] // 0.9 <= 3020
    assert 5380 <= tokens[2] <= 5400


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("vocab_size", [1, 2, 127, 128, 129, 1000])
def test_draw_extreme_uniforms_never_pick_a_banned_token(vocab_size: int, number: float) -> None:
    scores = torch.full((1, vocab_size), -torch.inf)
    scores[0, vocab_size // 2] = 3.0
    for params in (SamplingParams(), SamplingParams(top_k=3), SamplingParams(top_p=0.5), SamplingParams(min_p=0.1)):
        assert int(draw(scores, [params], torch.tensor([number], dtype=torch.float64))) == vocab_size // 2


def test_draw_extreme_temperatures_stay_finite() -> None:
    scores = torch.tensor([[1e30, -1e30, 17.0, -3.4e38], [20.0, 19.9999, -5.0, 1.0]])
    numbers = torch.tensor([0.999, 0.999], dtype=torch.float64)
    assert draw(scores, [SamplingParams(temperature=1e-5)] * 2, numbers).tolist() == [0, 0]
    hot = draw(scores[1:].expand(400, -1), [SamplingParams(temperature=1e6)] * 400, torch.arange(400).double() / 400)
    assert torch.bincount(hot).tolist() == pytest.approx([100, 100, 100, 100], abs=1)
