"""Every backend of the laboratory against the oracle in float64, and the three bindings against each other."""

import ctypes
import math

import numpy as np
import pytest

from engine.errors import ConfigError
from engine.kernels.binding_build import BINDINGS, build_binding
from engine.kernels.kernel_inputs import Inputs, attention_inputs, matmul_inputs, softmax_inputs
from engine.kernels.lab.cases import Case, model_cases, odd_cases
from engine.kernels.lab.correctness import check, errors
from engine.kernels.native_bindings import KernelFunctions, through_ctypes, through_module
from engine.kernels.native_kernels import NativeKernels
from engine.kernels.numpy_kernels import in_eight_bits, oracle, softmax
from engine.kernels.prepared import PreparedKernel
from engine.kernels.registry import BACKENDS, KERNELS, Backend, find_backends, native_kernel_makers
from tests.support.native import ALL_INSTRUCTION_SETS, library_for, native_library

CASES = [*odd_cases(), *model_cases()]


@pytest.fixture(scope="module")
def backends() -> dict[str, Backend]:
    native_library()  # skips, or fails where tools are required, without a compiler
    return {backend.name: backend for backend in find_backends(lambda text: None, build=True)}


@pytest.fixture(scope="module", params=("ctypes", *BINDINGS))
def functions(request: pytest.FixtureRequest) -> KernelFunctions:
    library = native_library()
    if request.param == "ctypes":
        return through_ctypes(library)
    return through_module(request.param, build_binding(request.param, lambda text: None), library)


def case_name(case: Case) -> str:
    return f"{case.kernel}-{case.shape}"


@pytest.mark.parametrize("name", ["numpy", "torch", "ctypes", "pybind11", "nanobind"])
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_kernel_of_each_backend_matches_float64(backends: dict[str, Backend], name: str, case: Case) -> None:
    assert backends[name].state == "available", backends[name].reason
    result = check(case, case.make(), backends[name])
    assert result.passed, result


@pytest.mark.parametrize("instruction_set", ALL_INSTRUCTION_SETS)
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_kernel_of_each_instruction_set_matches_float64(instruction_set: str, case: Case) -> None:
    native = NativeKernels(library_for(instruction_set), instruction_set)
    backend = Backend("ctypes", kernels=native_kernel_makers(native), rounding=native.activation_steps)
    result = check(case, case.make(), backend)
    assert result.passed, result


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_bindings_give_the_same_bits(backends: dict[str, Backend], case: Case) -> None:
    inputs = case.make()
    first, *others = (backends[name].kernels[case.kernel](inputs).run() for name in ("ctypes", *BINDINGS))
    for other in others:
        assert np.array_equal(first, other)


def test_registry_names_every_backend_and_its_kernels(backends: dict[str, Backend]) -> None:
    assert tuple(backends) == BACKENDS
    for backend in backends.values():
        assert (backend.state == "available") == (backend.reason == "") == bool(backend.kernels)
        assert tuple(backend.kernels) in (KERNELS, ())


def test_registry_instruction_set_that_is_missing_is_the_reason() -> None:
    native_library()
    found = {backend.name: backend for backend in find_backends(lambda text: None, build=False, instruction_set="sse9")}
    for name in ("ctypes", *BINDINGS):
        assert (found[name].state, found[name].reason) == ("unavailable", "this machine has no sse9")


def test_array_of_another_type_or_layout_is_refused(functions: KernelFunctions) -> None:
    x = np.ones((4, 8), dtype=np.float32)
    out = np.empty_like(x)
    functions["softmax"]("portable", x, 4, 8, out)
    assert np.allclose(out, 1 / 8)
    for bad in (x.astype(np.float64), x.T, x[:, ::2], x.astype(np.int32)):
        with pytest.raises((TypeError, ctypes.ArgumentError)):
            functions["softmax"]("portable", bad, 4, 8, out)
        with pytest.raises((TypeError, ctypes.ArgumentError)):
            functions["softmax"]("portable", x, 4, 8, bad)


def test_failure_in_a_kernel_is_named(functions: KernelFunctions) -> None:
    kernels = NativeKernels(native_library(), "sse9", functions=functions)
    with pytest.raises(ConfigError, match=r"^`softmax`: this machine has no sse9$"):
        kernels.softmax(np.ones((1, 4), dtype=np.float32))


def test_functions_that_do_nothing_take_the_same_arguments(functions: KernelFunctions) -> None:
    arrays = [np.ones(8, dtype=np.float32) for _ in range(3)]
    addresses = [array.ctypes.data for array in arrays]
    for suffix in ("", "_released"):
        assert functions[f"empty_call{suffix}"]() == 0
        assert functions[f"take_pointers{suffix}"](addresses[0], addresses[1], 8, 1e-5, addresses[2]) == 0
        assert functions[f"take_arrays{suffix}"](arrays[0], arrays[1], 8, 1e-5, arrays[2]) == 0


def test_packed_matrix_is_freed_once_and_not_used_afterwards(functions: KernelFunctions) -> None:
    kernels, inputs = (
        NativeKernels(native_library(), "portable", functions=functions),
        matmul_inputs(2, 5, 64, encoding="Q4_1"),
    )
    packed = kernels.pack(inputs.weights, 64, encoding="Q4_1")
    assert kernels.matmul_packed(inputs.x, packed).shape == (2, 5)
    packed.close()
    packed.close()
    with pytest.raises(AssertionError, match="freed"):
        kernels.matmul_packed(inputs.x, packed)


def test_sequence_attention_group_too_large_is_refused(functions: KernelFunctions) -> None:
    kernels = NativeKernels(native_library(), "portable", functions=functions)
    given = attention_inputs(1, 4, num_heads=97, num_kv_heads=1, head_dim=16, block_size=16)
    cache = kernels.page(given.keys, given.values, given.block_table, kv_dtype="float32", block_size=16)
    with pytest.raises(ConfigError, match="unsupported number of heads"):
        kernels.sequence_attention(given.query, cache, first_num_keys=4)


def test_oracle_matches_sums_written_out() -> None:
    """The oracle is what all others are held to, so it is held to plain arithmetic."""
    row = softmax_inputs(1, 7).x
    powers = [math.exp(float(value) - float(row.max())) for value in row[0]]
    assert np.allclose(oracle(softmax_inputs(1, 7))[0], [power / sum(powers) for power in powers], rtol=1e-14)
    given = attention_inputs(2, 9, num_heads=2, num_kv_heads=1, head_dim=4, block_size=4)
    attended = oracle(given)
    for query, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        total = np.zeros(4)
        scores = [
            math.fsum(given.query[query, head] * given.keys[key, 0].astype(float)) / 2.0 for key in range(8 + query)
        ]
        weights = [math.exp(score - max(scores)) for score in scores]
        for key, weight in enumerate(weights):
            total += weight / math.fsum(weights) * given.values[key, 0]
        assert np.allclose(attended[query, head], total, rtol=1e-6)


def test_oracle_rounds_activations_only_when_asked() -> None:
    given = matmul_inputs(3, 5, 64, encoding="Q8_0")
    assert not np.array_equal(oracle(given), oracle(given, activation_steps=(127, 125)))
    assert np.abs(in_eight_bits(given.x) - given.x).max() <= np.abs(given.x).max() / 127 / 2 * 1.01


def test_check_of_a_wrong_kernel_fails() -> None:
    case = next(case for case in CASES if case.kernel == "softmax" and case.shape == "[3, 41]")

    def slightly_wrong(given: Inputs) -> PreparedKernel:
        return PreparedKernel(lambda: (softmax(given.x) * 1.0001).astype(np.float32), lambda result: result)  # type: ignore[union-attr]

    result = check(case, case.make(), Backend("wrong", kernels={"softmax": slightly_wrong}))
    assert not result.passed
    assert result.max_rel_error == pytest.approx(1e-4, rel=0.1)


def test_errors_of_nan_are_none_and_of_another_shape_raise() -> None:
    bad, good = np.array([1.0, np.nan], dtype=np.float32), np.array([1.0, 2.0])
    assert errors(bad, good) == (None, None)
    assert errors(np.array([1.0, 2.5], dtype=np.float32), good) == (0.5, 0.25)
    with pytest.raises(ValueError, match="shape"):
        errors(np.ones(3, dtype=np.float32), good)


def test_paged_attention_in_numpy_sees_no_later_key() -> None:
    given = attention_inputs(3, 10, num_heads=2, num_kv_heads=2, head_dim=4, block_size=4)
    before = oracle(given)
    given.values[9] += 100  # the last key's, which only the last query sees
    after = oracle(given)
    assert np.array_equal(before[:2], after[:2])
    assert not np.array_equal(before[2], after[2])


def test_paged_inputs_hold_each_token_once_and_nothing_else() -> None:
    given = attention_inputs(1, 9, num_heads=2, num_kv_heads=2, head_dim=4, block_size=4)
    keys, values = given.paged()
    for token in range(9):
        block, slot = given.block_table[token // 4], token % 4
        assert np.array_equal(keys[block, :, :, slot], given.keys[token])
        assert np.array_equal(values[block, :, slot], given.values[token])
    assert np.isfinite(keys).sum() == given.keys.size
    assert np.isfinite(values).sum() == given.values.size
