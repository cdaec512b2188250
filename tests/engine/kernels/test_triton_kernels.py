"""The Triton kernels and torch's on a CUDA device, against the oracle in float64."""

import importlib.util

import pytest
import torch

from engine.kernels.lab.cases import Case, model_cases, odd_cases
from engine.kernels.lab.correctness import check
from engine.kernels.registry import Backend, find_backends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CASES = [*odd_cases(), *model_cases()]


@pytest.fixture(scope="module")
def backends() -> dict[str, Backend]:
    return {backend.name: backend for backend in find_backends(lambda text: None, build=False)}


@pytest.mark.parametrize("name", ["torch-cuda", "triton"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel}-{case.shape}")
def test_kernel_on_cuda_matches_float64(backends: dict[str, Backend], name: str, case: Case) -> None:
    if name == "triton" and importlib.util.find_spec("triton") is None:
        pytest.skip("the triton package is not installed")
    assert backends[name].state == "available", backends[name].reason
    result = check(case, case.make(), backends[name])
    assert result.passed, result
