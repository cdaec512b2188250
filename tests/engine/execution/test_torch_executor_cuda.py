"""The torch executor and its sampler on a CUDA device: the same code, checked against the same oracle."""

import pytest
import torch

from engine.execution.executor import SampledToken
from engine.execution.reference import ReferenceExecutor
from engine.execution.torch_executor import TorchExecutor
from engine.model.spec import DecoderSpec
from engine.sampling.sampler import TorchSampler
from engine.sampling_params import SamplingParams
from tests.support.paged_runs import PagedRun
from tests.support.sampling_rows import sampling_row
from tests.support.tiny_models import TINY_SPECS, tiny_weights

BLOCK_SIZE = 4
NUM_BLOCKS = 256

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(params=list(TINY_SPECS))
def spec(request: pytest.FixtureRequest) -> DecoderSpec:
    return TINY_SPECS[request.param]


def mixed_run(spec: DecoderSpec, *, dtype: str) -> PagedRun:
    """Compute a mixed batch on the device, then its decodes, and return the run; `exact` is told the same tokens."""
    executor = TorchExecutor(
        spec, tiny_weights(spec), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype, device="cuda"
    )
    return PagedRun(executor, BLOCK_SIZE, NUM_BLOCKS)


def compare(run: PagedRun, spec: DecoderSpec) -> tuple[float, float]:
    """Run the same steps on both; return the largest difference and the largest logit. The oracle's tokens are used."""
    oracle = ReferenceExecutor(
        spec, tiny_weights(spec), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=torch.float64
    )
    exact = PagedRun(oracle, BLOCK_SIZE, NUM_BLOCKS)
    prompts = {"a": [5], "b": list(range(1, 30)), "c": [7, 7, 9], "d": [int(i * 37 % 131) for i in range(200)]}
    seqs = [[each.add(name, prompt) for name, prompt in prompts.items()] for each in (run, exact)]
    for each, mine in zip((run, exact), seqs, strict=True):
        each.step(*((seq, seq.num_tokens) for seq in mine))
    for _ in range(4):
        for ours, theirs in zip(*seqs, strict=True):
            ours.output_token_ids.append(exact.append_greedy(theirs))
        for each, mine in zip((run, exact), seqs, strict=True):
            each.step(*((seq, 1) for seq in mine))
    differences = [float((row.cpu().double() - exact.logits[place]).abs().max()) for place, row in run.logits.items()]
    return max(differences), max(float(row.abs().max()) for row in exact.logits.values())


def test_torch_executor_cuda_float32_matches_exact_reference(spec: DecoderSpec) -> None:
    difference, _ = compare(mixed_run(spec, dtype="float32"), spec)
    assert difference < 1e-3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_torch_executor_cuda_half_precision_stays_near_reference(spec: DecoderSpec, dtype: str) -> None:
    difference, scale = compare(mixed_run(spec, dtype=dtype), spec)
    assert difference < 0.1 * scale


def test_torch_executor_cuda_auto_is_bfloat16() -> None:
    spec = TINY_SPECS["llama"]
    executor = TorchExecutor(spec, tiny_weights(spec), num_blocks=4, block_size=4)
    assert (executor.device.type, executor.dtype_name) == ("cuda", "bfloat16")


def test_sampler_cuda_gives_the_tokens_of_the_cpu() -> None:
    logits = torch.randn(64, 5000, generator=torch.Generator().manual_seed(2)) * 3
    logits[5, 17] = torch.nan
    settings = [
        SamplingParams(temperature=0.0),
        SamplingParams(seed=3),
        SamplingParams(top_k=40, repetition_penalty=1.2, logit_bias=((8, 3.0),)),
        SamplingParams(top_p=0.95, temperature=2.5, presence_penalty=0.5),
        SamplingParams(min_p=0.1, min_tokens=3, bad_words=((4, 5),), allowed_token_ids=tuple(range(4000))),
    ]
    rows = [sampling_row(i, settings[i % 5], output=(4,)) for i in range(64)]

    def tokens(device: str) -> list[SampledToken]:
        return TorchSampler(5000, (2,)).sample(logits.to(device), rows)

    assert tokens("cuda") == tokens("cpu")
