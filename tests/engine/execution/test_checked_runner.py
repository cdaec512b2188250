"""The torch executor with the shadow KV beside it: the same tokens, under pressure too, and a wrong table raises."""

from collections.abc import Iterator

import pytest
import torch

from engine.execution.checked_runner import CheckedLogits, checked_runner
from engine.execution.executor import ModelRunner
from engine.execution.shadow_kv import ShadowKVError
from engine.execution.torch_executor import TorchExecutor
from engine.kv.block_manager import BlockManager
from engine.sampling.sampler import TorchSampler
from engine.sampling_params import SamplingParams
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import Choice, ScriptedEngine
from tests.support.tiny_models import TINY_SPECS, tiny_weights

SPEC = TINY_SPECS[next(iter(TINY_SPECS))]
BLOCK_SIZE = 4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def torch_runner(num_blocks: int) -> ModelRunner[CheckedLogits[torch.Tensor]]:
    executor = TorchExecutor(
        SPEC, tiny_weights(SPEC), num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype="float32", device="cpu", threads=1
    )
    real = ModelRunner(executor, TorchSampler(SPEC.vocab_size, ()))
    return checked_runner(real, num_blocks=num_blocks, block_size=BLOCK_SIZE)


def serve(
    num_blocks: int, *, at_once: bool, blocks_class: type[BlockManager] = BlockManager
) -> dict[Choice, list[int]]:
    """Serve ten sampled requests with shared beginnings and forks; return all tokens."""
    engine = ScriptedEngine(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=6,
        max_num_batched_tokens=16,
        runner=torch_runner(num_blocks),
        blocks_class=blocks_class,
        eos_token_ids=(),
    )
    for number in range(10):
        shared = distinct_tokens(10, salt=1)[: 3 + number]
        prompt = [token % SPEC.vocab_size for token in shared + distinct_tokens(4, salt=50 + number)]
        params = SamplingParams(max_tokens=8 + number, n=1 + number % 3, temperature=0.8, seed=number)
        engine.add(prompt, params=params)
        if not at_once:
            engine.run(max_steps=100)
    engine.run(max_steps=1000)
    assert engine.check_at_rest().num_preemptions > 0 or not at_once
    return engine.outputs


def test_checked_torch_executor_under_pressure_gives_the_tokens_of_one_by_one() -> None:
    assert serve(14, at_once=True) == serve(60, at_once=False)


class SkipsCopies(BlockManager):
    def take_copies(self) -> tuple[tuple[int, int], ...]:
        super().take_copies()
        return ()


def test_checked_torch_executor_raises_where_a_copy_is_missing() -> None:
    with pytest.raises(ShadowKVError):
        serve(14, at_once=True, blocks_class=SkipsCopies)


def test_checked_executor_says_what_it_checks() -> None:
    assert torch_runner(4).executor.name == "checked torch"
