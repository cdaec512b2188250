"""The native draw takes the tokens that the torch draw takes, on every instruction set of this machine."""

import functools
import itertools

import numpy as np
import pytest
import torch

from engine.errors import ConfigError
from engine.sampling.draw import draw_rows
from engine.sampling.native_draw import NativeDraw
from engine.sampling_params import SamplingParams
from tests.support.native import ALL_INSTRUCTION_SETS, library_for, native_library

SETTINGS = [
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for temperature, top_k, top_p, min_p in itertools.product(
        (0.3, 1.0, 5.0), (0, 1, 40, 700, 10**7), (1.0, 0.9, 1e-9), (0.0, 0.02, 1.0)
    )
]
LAST_UNIFORM = 1 - 2**-53


@pytest.fixture(params=ALL_INSTRUCTION_SETS)
def draw(request: pytest.FixtureRequest) -> NativeDraw:
    return NativeDraw(library_for(request.param), request.param)


def spread(vocab_size: int, width: float, *, seed: int = 0) -> torch.Tensor:
    """Return scores of one row for each of SETTINGS."""
    return torch.randn(len(SETTINGS), vocab_size, generator=torch.Generator().manual_seed(seed)) * width


def numbers(count: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(count)


@functools.cache
def torch_tokens(vocab_size: int, width: float) -> list[int]:
    """Return what the torch draw takes from spread(...) with numbers(...); the same for every instruction set."""
    return draw_rows(spread(vocab_size, width), range(len(SETTINGS)), SETTINGS, numbers(len(SETTINGS)))


@pytest.mark.parametrize("vocab_size", [1, 2, 15, 127, 128, 129, 3001, 20_000])
@pytest.mark.parametrize("width", [0.01, 2.0, 6.0])
def test_native_draw_takes_the_tokens_of_the_torch_draw(draw: NativeDraw, vocab_size: int, width: float) -> None:
    found = draw(spread(vocab_size, width).numpy(), range(len(SETTINGS)), SETTINGS, numbers(len(SETTINGS)))
    assert found == torch_tokens(vocab_size, width)


def test_native_draw_equal_scores_go_by_the_lower_id(draw: NativeDraw) -> None:
    scores = spread(3001, 2.0).mul(4).round().div(4)
    scores[:, ::7] = -0.0
    uniforms, rows = numbers(len(SETTINGS)), range(len(SETTINGS))
    assert draw(scores.numpy(), rows, SETTINGS, uniforms) == draw_rows(scores, rows, SETTINGS, uniforms)


def test_native_draw_of_a_row_knows_no_other(draw: NativeDraw) -> None:
    scores, uniforms, rows = spread(3001, 3.0), numbers(len(SETTINGS)), list(range(len(SETTINGS)))
    together = draw(scores.numpy(), rows, SETTINGS, uniforms)
    alone = [draw(scores[i : i + 1].numpy(), [0], [SETTINGS[i]], uniforms[i : i + 1])[0] for i in rows]
    backwards = draw(scores.numpy(), rows[::-1], SETTINGS[::-1], np.ascontiguousarray(uniforms[::-1]))
    assert together == alone == backwards[::-1]


def test_native_draw_many_draws_of_one_row_follow_the_torch_draw(draw: NativeDraw) -> None:
    scores, uniforms = spread(5000, 2.5)[:1], np.linspace(0, LAST_UNIFORM, 500)
    for params in (SamplingParams(temperature=0.8), SamplingParams(top_p=0.95), SamplingParams(top_k=50, top_p=0.9)):
        arguments = (scores, [0] * 500, [params] * 500, uniforms)
        assert draw(arguments[0].numpy(), *arguments[1:]) == draw_rows(*arguments)


@pytest.mark.parametrize("vocab_size", [1, 2, 127, 128, 129, 1000])
@pytest.mark.parametrize("number", [0.0, 0.5, LAST_UNIFORM])
def test_native_draw_never_takes_a_banned_token(draw: NativeDraw, vocab_size: int, number: float) -> None:
    scores = torch.full((1, vocab_size), -torch.inf)
    scores[0, vocab_size // 2] = 3.0
    for params in SETTINGS:
        assert draw(scores.numpy(), [0], [params], np.array([number])) == [vocab_size // 2]


def test_native_draw_extreme_scores_and_temperatures_stay_finite(draw: NativeDraw) -> None:
    scores = torch.tensor([[1e30, -1e30, 17.0, -3.4e38], [20.0, 19.9999, -5.0, 1.0]])
    cold, hot = SamplingParams(temperature=1e-5), SamplingParams(temperature=1e6)
    for top_p, top_k in itertools.product((1.0, 0.9), (0, 3)):
        filtered = SamplingParams(temperature=1e-5, top_p=top_p, top_k=top_k)
        assert draw(scores.numpy(), [0, 1], [filtered] * 2, np.array([0.999, 0.999])) == [0, 0]
    assert draw(scores.numpy(), [0, 1], [cold] * 2, np.array([0.999, 0.999])) == [0, 0]
    counts = np.bincount(draw(scores.numpy(), [1] * 400, [hot] * 400, np.arange(400) / 400))
    assert counts.tolist() == pytest.approx([100, 100, 100, 100], abs=1)


def test_native_draw_nucleus_of_nearly_flat_scores_is_complete(draw: NativeDraw) -> None:
    """90 % of the mass is 90 % of the tokens, and the last of them can be drawn."""
    scores = torch.linspace(0.01, 0.0, 6000)[None]
    tokens = draw(scores.numpy(), [0] * 3, [SamplingParams(top_p=0.9)] * 3, np.array([0.0, 0.5, LAST_UNIFORM]))
    assert tokens == draw_rows(scores, [0] * 3, [SamplingParams(top_p=0.9)] * 3, np.array([0.0, 0.5, LAST_UNIFORM]))
    assert 5380 <= tokens[2] <= 5400


def test_native_draw_unknown_instruction_set_is_named() -> None:
    with pytest.raises(ConfigError, match="this machine has no sse9"):
        NativeDraw(native_library(), "sse9")(np.zeros((1, 4), dtype=np.float32), [0], [SamplingParams()], np.zeros(1))


@pytest.mark.parametrize("width", [0.0, 0.2, 1.5])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 0.9])
def test_native_draw_wide_nucleus_is_walked_best_first(draw: NativeDraw, width: float, min_p: float) -> None:
    """Nuclei of thousands of tokens go through buckets; the whole range of uniform numbers meets the torch draw's."""
    scores = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(3)).mul(width).mul(64).round().div(64)
    uniforms = np.concatenate([np.linspace(0, 1, 60, endpoint=False), [LAST_UNIFORM]])
    for top_p in (0.3, 0.97):
        params = [SamplingParams(top_p=top_p, min_p=min_p)] * len(uniforms)
        rows = [0] * len(uniforms)
        assert draw(scores.numpy(), rows, params, uniforms) == draw_rows(scores, rows, params, uniforms)


def misleading_rows() -> dict[str, torch.Tensor]:
    """Return rows of 20,000 scores of which tokens at equal distances, or any few tokens, say little."""
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(20_000, generator=generator)
    values = torch.randint(0, 3, (20_000,), generator=generator)
    step = 20_000 // 192
    low, high, head, cliff = noise.clone(), noise.clone(), noise * 0.1, noise * 3
    low[::step] -= 9
    high[::step] += 4
    head[777] = 9.0
    cliff[cliff < 2] = -torch.inf
    return {
        "sample too low": low,
        "sample too high": high,
        "one heavy token": head,
        "most are banned": cliff,
        "two values": (values > 0).float(),
        "three values": values.float() * 0.4,
        "rising": torch.linspace(-4, 4, 20_000),
        "falling": torch.linspace(4, -4, 20_000),
        "signed zeros": torch.where(values > 1, 0.0, -0.0),
    }


@pytest.mark.parametrize("name", misleading_rows())
def test_native_draw_where_a_sample_misleads_is_the_same(draw: NativeDraw, name: str) -> None:
    scores = misleading_rows()[name][None]
    uniforms = np.concatenate([np.linspace(0, 1, 40, endpoint=False), [LAST_UNIFORM]])
    rows = [0] * len(uniforms)
    for top_p, min_p in ((0.2, 0.0), (0.9, 0.0), (0.9, 0.3), (0.999, 0.0), (1 - 1e-9, 0.0)):
        params = [SamplingParams(top_p=top_p, min_p=min_p)] * len(uniforms)
        assert draw(scores.numpy(), rows, params, uniforms) == draw_rows(scores, rows, params, uniforms)


@pytest.mark.parametrize("width", [4.0, 6.0, 9.0])
def test_native_draw_of_ordinary_rows_is_walked_best_first(draw: NativeDraw, width: float) -> None:
    """Some hundred to some thousand of 49,152 tokens make up the nucleus, a few of them most of it."""
    scores = torch.randn(1, 49_152, generator=torch.Generator().manual_seed(5)).mul(width)
    uniforms, rows = np.linspace(0, 1, 40, endpoint=False), [0] * 40
    for top_p in (0.5, 0.95, 0.9999):
        params = [SamplingParams(top_p=top_p, temperature=0.9)] * 40
        assert draw(scores.numpy(), rows, params, uniforms) == draw_rows(scores, rows, params, uniforms)


def test_native_draw_takes_the_same_tokens_with_every_instruction_set() -> None:
    """Sums have one order whatever the registers' width; only without fused multiply-adds are weights others."""
    scores = torch.randn(200, 5000, generator=torch.Generator().manual_seed(6)).mul(2.0).numpy()
    rows, uniforms = range(200), numbers(200, seed=6)
    params = [SamplingParams(top_p=0.2 + 0.004 * i) for i in rows]
    names = [name for name in native_library().instruction_sets() if name != "portable"]
    found = [NativeDraw(native_library(), name)(scores, rows, params, uniforms) for name in names]
    assert all(tokens == found[0] for tokens in found)


@pytest.mark.parametrize("vocab_size", [150, 3000])
def test_native_draw_nucleus_of_everything_ends_before_banned_tokens(draw: NativeDraw, vocab_size: int) -> None:
    """The sum that the nucleus is a share of is rounded; where it is a little too large, all tokens don't reach it."""
    scores = torch.randn(50, vocab_size, generator=torch.Generator().manual_seed(7))
    scores[:, vocab_size // 3 :: 2] = -torch.inf
    everything = SamplingParams(top_p=1 - 2**-53)
    tokens = draw(scores.numpy(), range(50), [everything] * 50, np.full(50, LAST_UNIFORM))
    least = torch.where(scores.isfinite(), scores, torch.inf).amin(dim=1)
    drawn = scores[torch.arange(50), torch.tensor(tokens)]
    assert drawn.isfinite().all()
    # Rounding in the other direction ends a nucleus some tokens of next to no weight too early.
    assert (drawn < least + 1.5).all()
