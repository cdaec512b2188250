"""The models under comparison, and a table of the largest differences seen at the end of the run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine.execution.torch_executor import TorchExecutor
from engine.model.load import load_model
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights
from tests.support.tiny_models import TINY_SPECS, tiny_weights

TOLERANCE = 1e-5
DIFFERENCES = pytest.StashKey[dict[str, float]]()


@dataclass(frozen=True)
class Subject:
    """A model on the torch executor; every run brings its own pool, the executor's memory is shared.

    Attributes:
        prompt_blocks: lengths of prompts to try, in blocks.
    """

    name: str
    executor: TorchExecutor
    vocab_size: int
    block_size: int
    num_blocks: int
    prompt_blocks: tuple[int, ...]

    def prompt(self, length: int, *, seed: int) -> list[int]:
        return [int(token) for token in np.random.default_rng(seed).integers(0, self.vocab_size, length)]


def make_subject(
    name: str, spec: DecoderSpec, weights: Weights, *, block_size: int, num_blocks: int, prompt_blocks: tuple[int, ...]
) -> Subject:
    executor = TorchExecutor(
        spec, weights, num_blocks=num_blocks, block_size=block_size, dtype="float32", device="cpu", threads=1
    )
    return Subject(name, executor, spec.vocab_size, block_size, num_blocks, prompt_blocks)


@pytest.fixture(
    scope="package",
    params=[
        *(name for name in TINY_SPECS if name != "linear-rope"),
        pytest.param("smollm2-135m-instruct", marks=pytest.mark.model),
    ],
)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    threads = torch.get_num_threads()
    if request.param in TINY_SPECS:
        spec = TINY_SPECS[request.param]
        yield make_subject(request.param, spec, tiny_weights(spec), block_size=4, num_blocks=256, prompt_blocks=(1, 3))
    else:
        model = load_model(request.param)
        yield make_subject(request.param, model.spec, model.weights, block_size=16, num_blocks=64, prompt_blocks=(1,))
    torch.set_num_threads(threads)


@pytest.fixture
def check_difference(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """Note a difference under the name of its equivalence, and hold it against the tolerance."""

    def check(equivalence: str, difference: float) -> None:
        seen = request.config.stash.setdefault(DIFFERENCES, {})
        seen[equivalence] = max(difference, seen.get(equivalence, 0.0))
        assert difference <= TOLERANCE

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    differences = config.stash.get(DIFFERENCES, {})
    if differences:
        terminalreporter.section("largest logit differences")
        for equivalence, difference in differences.items():
            terminalreporter.write_line(f"{equivalence}: {difference:.3g}")
