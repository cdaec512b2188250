"""The formulas in NumPy, computed in the type of their inputs: a readable reference, and in float64 the oracle."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.kernels.kernel_inputs import (
    AttentionInputs,
    Inputs,
    MatmulInputs,
    RmsNormInputs,
    RopeInputs,
    SoftmaxInputs,
    Steps,
    SwigluInputs,
)
from engine.kernels.prepared import KernelMakers, PreparedKernel

Array = NDArray[Any]  # float32 or float64
MOST_STEPS: Steps = (127, 125)
ACTIVATION_BLOCK = 32


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich, arXiv 1910.07467)."""
    normed: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight
    return normed


def softmax(x: Array) -> Array:
    """e^x / sum(e^x) over the last dimension, its largest value taken off first."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) * up (Shazeer, arXiv 2002.05202); the sigmoid by its tanh, which doesn't overflow."""
    half = gate.dtype.type(0.5)
    gated: Array = gate * (half + half * np.tanh(half * gate)) * up
    return gated


def rope(x: Array, cosines: Array, sines: Array) -> Array:
    """Rotate [num_tokens, num_heads, head_dim], halves paired (Su et al., arXiv 2104.09864)."""
    first, second = np.split(x, 2, axis=-1)
    cosines, sines = cosines[:, None], sines[:, None]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


def matmul(x: Array, weights: Array) -> Array:
    """x [num_rows, num_inputs] times the rows of weights [num_outputs, num_inputs]."""
    product: Array = x @ weights.T
    return product


def paged_attention(query: Array, keys: Array, values: Array, block_table: Array, first_num_keys: int) -> Array:
    """Attend causally over a paged cache, laid out as AttentionInputs.paged does; the result has query's shape."""
    num_queries, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    num_keys = first_num_keys + num_queries - 1
    k = keys[block_table].transpose(1, 2, 0, 3).reshape(num_kv_heads, 1, head_dim, -1)[..., :num_keys]
    v = values[block_table].transpose(1, 0, 2, 3).reshape(num_kv_heads, 1, -1, head_dim)[:, :, :num_keys]
    q = query.reshape(num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim).transpose(1, 2, 0, 3)
    scores = q @ k / query.dtype.type(np.sqrt(head_dim))  # [num_kv_heads, group, num_queries, num_keys]
    is_future = np.arange(num_keys) >= first_num_keys + np.arange(num_queries)[:, None]
    scores[..., is_future] = -np.inf
    attended: Array = (softmax(scores) @ v).transpose(2, 0, 1, 3).reshape(query.shape)
    return attended


def in_eight_bits(x: NDArray[np.float32], steps: Steps = MOST_STEPS) -> NDArray[np.float64]:
    """Return rows after the native kernels' quantisation of activations: 8 bits, one scale per block of 32.

    Of the roundings to some steps of a block's largest magnitude, each with the scale that fits it best, it is the one
    with the smaller error. All in float32 and in the kernels' order, as a tie must fall the same way.
    """
    blocks = x.reshape(len(x), x.shape[1] // ACTIVATION_BLOCK, ACTIVATION_BLOCK)
    largest = np.abs(blocks).max(axis=2)
    divisor = np.where(largest > np.float32(1e-30), largest, np.float32(np.inf))
    roundings = [_rounding(blocks, divisor, np.float32(most)) for most in steps]
    (first, first_scale, explained), (second, second_scale, more) = roundings
    is_better = more > explained
    scale = np.where(is_better, second_scale, first_scale).astype(np.float64)
    restored = np.where(is_better[..., None], second, first) * scale[..., None]
    return restored.reshape(x.shape)


def _rounding(blocks: Array, divisor: Array, most: np.float32) -> tuple[Array, Array, Array]:
    """Return integers [rows, blocks, 32], scales and the part of each block's squares that they explain."""
    y = blocks * (most / divisor)[..., None]
    n = np.rint(y)
    dot, norm = _sum_of_halves(y * n), _sum_of_halves(n * n)
    with np.errstate(invalid="ignore"):
        scale = np.where(norm > 0, dot / norm * (divisor / most), 0).astype(np.float32)
        explained = dot * dot / (norm * (most * most))
    return n, scale, explained


def _sum_of_halves(blocks: Array) -> Array:
    """Sum the last dimension, a power of two: its second half is added to its first, and so on."""
    while blocks.shape[-1] > 1:
        half = blocks.shape[-1] // 2
        blocks = blocks[..., :half] + blocks[..., half:]
    return blocks[..., 0]


def oracle(inputs: Inputs, *, activation_steps: Steps | None = None) -> NDArray[np.float64]:
    """Compute the kernel of these inputs in float64.

    Args:
        activation_steps: for a matrix product, what the native kernels define: activations rounded to 8 bits.
    """
    match inputs:
        case RmsNormInputs():
            return rms_norm(_exact(inputs.x), _exact(inputs.weight), inputs.epsilon)
        case SoftmaxInputs():
            return softmax(_exact(inputs.x))
        case SwigluInputs():
            return swiglu(_exact(inputs.gate), _exact(inputs.up))
        case RopeInputs():
            return rope(_exact(inputs.x), _exact(inputs.cosines), _exact(inputs.sines))
        case MatmulInputs():
            x = in_eight_bits(inputs.x, activation_steps) if activation_steps else _exact(inputs.x)
            return matmul(x, _exact(inputs.dequantized()))
        case AttentionInputs():
            keys, values = (_exact(array) for array in inputs.paged())
            return paged_attention(_exact(inputs.query), keys, values, inputs.block_table, inputs.first_num_keys)


def _exact(x: NDArray[np.float32]) -> NDArray[np.float64]:
    return x.astype(np.float64)


def _same(result: NDArray[np.float32]) -> NDArray[np.float32]:
    return result


def _matmul(inputs: MatmulInputs) -> PreparedKernel:
    weights = inputs.dequantized()
    return PreparedKernel(lambda: matmul(inputs.x, weights), _same)


def _paged_attention(inputs: AttentionInputs) -> PreparedKernel:
    keys, values = inputs.paged()
    return PreparedKernel(
        lambda: paged_attention(inputs.query, keys, values, inputs.block_table, inputs.first_num_keys), _same
    )


NUMPY_KERNELS: KernelMakers = {
    "rms_norm": lambda given: PreparedKernel(lambda: rms_norm(given.x, given.weight, given.epsilon), _same),
    "softmax": lambda given: PreparedKernel(lambda: softmax(given.x), _same),
    "swiglu": lambda given: PreparedKernel(lambda: swiglu(given.gate, given.up), _same),
    "rope": lambda given: PreparedKernel(lambda: rope(given.x, given.cosines, given.sines), _same),
    "matmul_int8": _matmul,
    "matmul_int4": _matmul,
    "paged_attention": _paged_attention,
}
