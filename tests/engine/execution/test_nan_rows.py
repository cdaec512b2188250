"""A sequence whose hidden state turns to NaN ends with an error; its batch mates and the prefix cache don't notice."""

import numpy as np
import pytest

from engine.execution.torch_executor import TorchExecutor
from engine.model.weights import Weights
from engine.sequence import EngineRequest
from tests.support.recorded_engine import EngineRun, request, run_requests
from tests.support.tiny_models import TINY_SPECS, FloatTensor, tiny_weights

SPEC = TINY_SPECS["qwen2"]
POISON = 130


@pytest.fixture(scope="module")
def executor() -> TorchExecutor:
    """A model in which the embedding of one token is NaN; its output head is whole."""
    weights = tiny_weights(SPEC)
    embed = weights["embed.weight"].to_float32()
    embed[POISON] = np.nan
    tensors = {**weights.tensors, "embed.weight": FloatTensor(name="embed.weight", values=embed)}
    return TorchExecutor(SPEC, Weights(tensors), num_blocks=64, block_size=4, device="cpu", threads=1)


def run(executor: TorchExecutor, *waves: list[EngineRequest], prefix_cache: bool = False) -> EngineRun:
    return run_requests(
        executor, SPEC.vocab_size, waves, block_size=4, num_blocks=64, prefix_cache=prefix_cache, max_num_seqs=8
    )


def mates() -> list[EngineRequest]:
    return [request("a", [1, 2, 3, 4, 5], 8, allowed_token_ids=tuple(range(100))), request("b", [9] * 9, 8, top_k=5)]


@pytest.mark.parametrize(
    "poisoned",
    [request("bad", [5, POISON, 7, 8, 9, 10], 8), request("bad", [5, 6, 7], 8, allowed_token_ids=(POISON,))],
    ids=["at prefill", "at decode"],
)
def test_nan_row_fails_its_request_and_leaves_the_others_unchanged(
    executor: TorchExecutor, poisoned: EngineRequest
) -> None:
    alone = run(executor, mates())
    first, second = mates()
    together = run(executor, [first, poisoned, second])
    assert list(together.errors) == ["bad"]
    assert "NaN" in together.errors["bad"]
    for name in ("a", "b"):
        assert together.tokens[name, 0] == alone.tokens[name, 0]


def test_nan_row_blocks_of_its_last_step_are_not_published(executor: TorchExecutor) -> None:
    prompt = [5, POISON, *range(1, 11)]
    again = run(executor, [request("bad", prompt, 4)], [request("bad again", prompt, 4)], prefix_cache=True)
    assert list(again.errors) == ["bad", "bad again"]
    assert again.num_cached["bad again"] == 0
