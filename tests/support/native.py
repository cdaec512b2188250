"""The built native library and packed small models for tests; a skip where no C++ compiler is."""

import functools
import os

import gguf
import numpy as np
import pytest
import torch

from engine.config import KvDtypeName
from engine.execution.forward_batch import ForwardBatch
from engine.execution.native_executor import NativeExecutor
from engine.kernels.build import build_library
from engine.kernels.native_library import NativeLibrary
from engine.kernels.toolchain import find_toolchain
from engine.model.file_tensor import FileTensor
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights
from tests.support.k_quants import quantize_k
from tests.support.tiny_models import tiny_weights

ALL_INSTRUCTION_SETS = ("amx", "avx512_bf16", "avx512", "avx2", "portable")

# Every width is a multiple of 32, so that every matrix can be packed; outputs are not all multiples of 16.
PACKABLE_SPEC = DecoderSpec(
    architecture="llama",
    vocab_size=131,
    hidden_size=64,
    intermediate_size=96,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    max_position_embeddings=512,
)

# The same for encodings with super-blocks of 256 inputs.
K_SPEC = DecoderSpec(
    architecture="llama",
    vocab_size=131,
    hidden_size=256,
    intermediate_size=512,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    max_position_embeddings=512,
)


def packable_spec(encoding: str) -> DecoderSpec:
    return K_SPEC if encoding.endswith("_K") else PACKABLE_SPEC


@functools.cache
def native_library() -> NativeLibrary:
    """Build (once per state of the sources) and load."""
    if find_toolchain() is None:
        if os.environ.get("PELLUCID_STRICT_TOOLS") == "1":
            pytest.fail("no C++ compiler; the native kernels can't be tested")
        pytest.skip("no C++ compiler")
    flags = tuple(os.environ.get("PELLUCID_TEST_KERNEL_FLAGS", "").split())  # scripts/sanitize_kernels.py
    return NativeLibrary(build_library(lambda text: None, extra_flags=flags))


def library_for(instruction_set: str) -> NativeLibrary:
    """Return the library, or skip on a machine without the instruction set."""
    library = native_library()
    if library.instruction_set(instruction_set) is None:
        pytest.skip(f"this machine has no {instruction_set}")
    return library


def quantized(values: np.ndarray, encoding: str) -> np.ndarray:
    """Return the rows of a float matrix in an encoding, uint8 [num_rows, bytes of a row] (F32: float32)."""
    if encoding == "F32":
        return np.ascontiguousarray(values, dtype=np.float32)
    if encoding.endswith("_K"):
        return quantize_k(values, encoding)
    return np.ascontiguousarray(gguf.quants.quantize(values, gguf.GGMLQuantizationType[encoding])).view(np.uint8)


def quantized_weights(spec: DecoderSpec, encoding: str, *, seed: int = 0) -> Weights:
    """Return tiny_weights with every matrix in a block format."""
    tensors = {}
    for name, tensor in tiny_weights(spec, seed=seed).items():
        values = tensor.to_float32()
        if values.ndim == 2 and encoding != "F32":
            tensors[name] = FileTensor(name, values.shape, encoding, quantized(values, encoding))
        else:
            tensors[name] = tensor
    return Weights(tensors)


class TensorNativeExecutor(NativeExecutor):
    """The native executor with logits as tensors, for tests that run the same on executors of either kind."""

    def execute(self, batch: ForwardBatch) -> torch.Tensor:  # type: ignore[override]
        return torch.from_numpy(super().execute(batch))


def native_executor(
    spec: DecoderSpec,
    weights: Weights,
    *,
    instruction_set: str = "auto",
    num_blocks: int = 64,
    block_size: int = 4,
    threads: int = 1,
    exact: bool = False,
    int8_weights: bool = False,
    bfloat16: bool = False,
    max_tokens: int = 512,
    kv_dtype: KvDtypeName = "float32",
) -> TensorNativeExecutor:
    return TensorNativeExecutor(
        spec,
        weights,
        library=library_for(instruction_set),
        num_blocks=num_blocks,
        block_size=block_size,
        max_tokens=max_tokens,
        max_positions=min(spec.max_position_embeddings, num_blocks * block_size),
        threads=threads,
        instruction_set=instruction_set,
        exact=exact,
        int8_weights=int8_weights,
        bfloat16=bfloat16,
        kv_dtype=kv_dtype,
    )
