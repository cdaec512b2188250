"""The order of tokens is unique, ties included."""

import torch

from engine.sampling.logprobs import best_token_ids
from engine.sampling.ordering import best_token, best_tokens


def test_best_tokens_ties_go_to_the_smaller_id() -> None:
    values = torch.tensor([[1.0, 3.0, -2.0, 3.0, 0.0, -0.0, 3.0]])
    assert best_tokens(values, 7).tolist() == [[1, 3, 6, 0, 4, 5, 2]]
    assert best_tokens(values, 2).tolist() == [[1, 3]]
    assert best_token_ids(values.numpy(), 7).tolist() == [[1, 3, 6, 0, 4, 5, 2]]
    assert best_token(values).tolist() == [1]


def test_best_tokens_minus_infinity_comes_last() -> None:
    values = torch.tensor([[-torch.inf, -1e38, -torch.inf, 5e-45, -5e-45]])
    assert best_tokens(values, 5).tolist() == [[3, 4, 1, 0, 2]]
    assert best_token_ids(values.numpy(), 5).tolist() == [[3, 4, 1, 0, 2]]
    assert best_token_ids(values.numpy(), 0).shape == (1, 0)


def test_best_tokens_large_rows_agree_with_a_stable_sort() -> None:
    values = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)).mul(8).round().div(8)
    expected = torch.sort(values, dim=-1, descending=True, stable=True).indices
    for k in (1, 17, 5000):
        assert torch.equal(best_tokens(values, k), expected[:, :k])
        assert best_token_ids(values.numpy(), k).tolist() == expected[:, :k].tolist()
