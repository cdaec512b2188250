"""The same kernels in Triton, for CUDA devices: float32 activations and accumulation, weights in the file's precision.

Importing needs the triton package, running a CUDA device. Each kernel is checked against the float64 oracle before it
is timed, as every other backend is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.kernel_inputs import (
    AttentionInputs,
    MatmulInputs,
    RmsNormInputs,
    RopeInputs,
    SoftmaxInputs,
    SwigluInputs,
)
from engine.kernels.prepared import KernelMakers, PreparedKernel
from engine.kernels.torch_kernels import to_numpy

_ELEMENTS = 1024  # of an elementwise program
_TILE = 16  # smallest side of a tensor core product in Triton
_TILE_OUTPUTS = 64
_BLOCK = 32  # inputs that share a scale


@triton.jit
def _rms_norm(x, weight, out, width, epsilon, WIDTH: tl.constexpr):  # noqa: N803
    """One program a row [width]; WIDTH is its next power of two."""
    at = tl.program_id(0) * width
    column = tl.arange(0, WIDTH)
    inside = column < width
    row = tl.load(x + at + column, mask=inside, other=0.0)
    factor = 1.0 / tl.sqrt(tl.sum(row * row, axis=0) / width + epsilon)
    scaled = row * factor * tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + at + column, scaled, mask=inside)


@triton.jit
def _softmax(x, out, width, WIDTH: tl.constexpr):  # noqa: N803
    """One program a row [width]; WIDTH is its next power of two."""
    at = tl.program_id(0) * width
    column = tl.arange(0, WIDTH)
    inside = column < width
    row = tl.load(x + at + column, mask=inside, other=-float("inf"))
    powers = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + at + column, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def _swiglu(gate, up, out, count, ELEMENTS: tl.constexpr):  # noqa: N803
    """Elementwise, ELEMENTS a program."""
    place = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = place < count
    g = tl.load(gate + place, mask=inside, other=0.0)
    tl.store(out + place, g * tl.sigmoid(g) * tl.load(up + place, mask=inside, other=0.0), mask=inside)


@triton.jit
def _rope(x, cosines, sines, out, num_heads, half, HALF: tl.constexpr):  # noqa: N803
    """One program a (token, head); HALF is the next power of two of half a head's dimensions."""
    token = tl.program_id(0)
    at = (token * num_heads + tl.program_id(1)) * 2 * half
    place = tl.arange(0, HALF)
    inside = place < half
    first = tl.load(x + at + place, mask=inside, other=0.0)
    second = tl.load(x + at + half + place, mask=inside, other=0.0)
    cosine = tl.load(cosines + token * half + place, mask=inside, other=0.0)
    sine = tl.load(sines + token * half + place, mask=inside, other=0.0)
    tl.store(out + at + place, first * cosine - second * sine, mask=inside)
    tl.store(out + at + half + place, second * cosine + first * sine, mask=inside)


@triton.jit
def _matmul_int8(
    x, values, scales, out, num_rows, num_outputs, num_inputs,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One program a tile of the result. values: int8 [num_outputs, num_inputs]; scales: [num_outputs, blocks]."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    in_row, in_output = row < num_rows, output < num_outputs
    place = tl.arange(0, BLOCK)
    num_blocks = num_inputs // BLOCK
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for block in range(num_blocks):
        column = block * BLOCK + place
        tile = tl.load(x + row[:, None] * num_inputs + column[None, :], mask=in_row[:, None], other=0.0)
        weight = tl.load(values + output[None, :] * num_inputs + column[:, None], mask=in_output[None, :], other=0)
        scale = tl.load(scales + output * num_blocks + block, mask=in_output, other=0.0)
        total += tl.dot(tile, weight.to(tl.float32), input_precision="ieee") * scale[None, :]
    tl.store(out + row[:, None] * num_outputs + output[None, :], total, mask=in_row[:, None] & in_output[None, :])


@triton.jit
def _matmul_int4(
    x, nibbles, scales, offsets, out, num_rows, num_outputs, num_inputs,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One program a tile of the result. nibbles: uint8 [num_outputs, blocks, 16], low halves are inputs 0..15."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    in_row, in_output = row < num_rows, output < num_outputs
    place = tl.arange(0, BLOCK // 2)
    num_blocks = num_inputs // BLOCK
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for block in range(num_blocks):
        at = x + row[:, None] * num_inputs + block * BLOCK + place[None, :]
        low = tl.load(at, mask=in_row[:, None], other=0.0)
        high = tl.load(at + BLOCK // 2, mask=in_row[:, None], other=0.0)
        packed = tl.load(
            nibbles + (output[None, :] * num_blocks + block) * (BLOCK // 2) + place[:, None],
            mask=in_output[None, :],
            other=0,
        )
        scale = tl.load(scales + output * num_blocks + block, mask=in_output, other=0.0)
        offset = tl.load(offsets + output * num_blocks + block, mask=in_output, other=0.0)
        product = tl.dot(low, (packed & 15).to(tl.float32), input_precision="ieee")
        product += tl.dot(high, (packed >> 4).to(tl.float32), input_precision="ieee")
        sums = tl.sum(low, axis=1) + tl.sum(high, axis=1)
        total += product * scale[None, :] + sums[:, None] * offset[None, :]
    tl.store(out + row[:, None] * num_outputs + output[None, :], total, mask=in_row[:, None] & in_output[None, :])


@triton.jit
def _paged_attention(
    query, keys, values, block_table, out, num_heads, num_kv_heads, head_dim, block_size, first_num_keys, scale,
    GROUP: tl.constexpr, DIM: tl.constexpr, SLOTS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One program a (query, KV head), one block of keys at a time with a running maximum and sum (arXiv 2205.14135).

    GROUP, DIM and SLOTS are the next powers of two of the heads of a KV head, head_dim and block_size.
    """
    place, kv_head = tl.program_id(0), tl.program_id(1)
    group = num_heads // num_kv_heads
    num_keys = first_num_keys + place
    head, dim, slot = tl.arange(0, GROUP), tl.arange(0, DIM), tl.arange(0, SLOTS)
    in_head, in_dim = head < group, dim < head_dim
    at = (place * num_heads + kv_head * group + head[:, None]) * head_dim + dim[None, :]
    inside = in_head[:, None] & in_dim[None, :]
    q = tl.load(query + at, mask=inside, other=0.0) * scale
    largest = tl.full((GROUP,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((GROUP,), dtype=tl.float32)
    attended = tl.zeros((GROUP, DIM), dtype=tl.float32)
    for block in range(tl.cdiv(num_keys, block_size)):
        base = (tl.load(block_table + block).to(tl.int64) * num_kv_heads + kv_head) * head_dim * block_size
        seen = (slot < block_size) & (block * block_size + slot < num_keys)
        k = tl.load(
            keys + base + dim[:, None] * block_size + slot[None, :], mask=in_dim[:, None] & seen[None, :], other=0.0
        )
        v = tl.load(
            values + base + slot[:, None] * head_dim + dim[None, :], mask=seen[:, None] & in_dim[None, :], other=0.0
        )
        scores = tl.sum(q[:, :, None] * k[None, :, :], axis=1)
        scores = tl.where(seen[None, :], scores, -float("inf"))
        now_largest = tl.maximum(largest, tl.max(scores, axis=1))
        correction = tl.exp(largest - now_largest)
        powers = tl.exp(scores - now_largest[:, None])
        total = total * correction + tl.sum(powers, axis=1)
        attended = attended * correction[:, None] + tl.sum(powers[:, :, None] * v[None, :, :], axis=1)
        largest = now_largest
    tl.store(out + at, attended / total[:, None], mask=inside)


class TritonKernels:
    """The kernels on one CUDA device; inputs are moved there once, weights split into values and scales."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.makers: KernelMakers = {
            "rms_norm": self._rms_norm,
            "softmax": self._softmax,
            "swiglu": self._swiglu,
            "rope": self._rope,
            "matmul_int8": self._matmul_int8,
            "matmul_int4": self._matmul_int4,
            "paged_attention": self._paged_attention,
        }

    def _rms_norm(self, inputs: RmsNormInputs) -> PreparedKernel:
        x, weight = self._at(inputs.x), self._at(inputs.weight)
        num_rows, width = x.shape

        def run() -> Tensor:
            out = torch.empty_like(x)
            _rms_norm[(num_rows,)](x, weight, out, width, inputs.epsilon, WIDTH=triton.next_power_of_2(width))
            return out

        return self._prepared(run)

    def _softmax(self, inputs: SoftmaxInputs) -> PreparedKernel:
        x = self._at(inputs.x)
        num_rows, width = x.shape

        def run() -> Tensor:
            out = torch.empty_like(x)
            _softmax[(num_rows,)](x, out, width, WIDTH=triton.next_power_of_2(width))
            return out

        return self._prepared(run)

    def _swiglu(self, inputs: SwigluInputs) -> PreparedKernel:
        gate, up = self._at(inputs.gate), self._at(inputs.up)
        count = gate.numel()

        def run() -> Tensor:
            out = torch.empty_like(gate)
            _swiglu[(triton.cdiv(count, _ELEMENTS),)](gate, up, out, count, ELEMENTS=_ELEMENTS)
            return out

        return self._prepared(run)

    def _rope(self, inputs: RopeInputs) -> PreparedKernel:
        x, cosines, sines = self._at(inputs.x), self._at(inputs.cosines), self._at(inputs.sines)
        num_tokens, num_heads, head_dim = x.shape
        half = head_dim // 2

        def run() -> Tensor:
            out = torch.empty_like(x)
            _rope[(num_tokens, num_heads)](x, cosines, sines, out, num_heads, half, HALF=triton.next_power_of_2(half))
            return out

        return self._prepared(run)

    def _matmul_int8(self, inputs: MatmulInputs) -> PreparedKernel:
        blocks = inputs.weights.reshape(len(inputs.weights), -1, 2 + _BLOCK)  # float16 scale, int8 [32]
        values = self._at(np.ascontiguousarray(blocks[:, :, 2:]).view(np.int8))
        return self._matmul(_matmul_int8, inputs, values, self._halves(blocks, 0))

    def _matmul_int4(self, inputs: MatmulInputs) -> PreparedKernel:
        blocks = inputs.weights.reshape(len(inputs.weights), -1, 4 + _BLOCK // 2)  # float16 scale, offset; uint8 [16]
        nibbles = self._at(np.ascontiguousarray(blocks[:, :, 4:]))
        return self._matmul(_matmul_int4, inputs, nibbles, self._halves(blocks, 0), self._halves(blocks, 2))

    def _matmul(self, kernel: Any, inputs: MatmulInputs, *weights: Tensor) -> PreparedKernel:
        x = self._at(inputs.x)
        (num_rows, num_inputs), num_outputs = x.shape, len(inputs.weights)
        grid = (triton.cdiv(num_rows, _TILE), triton.cdiv(num_outputs, _TILE_OUTPUTS))

        def run() -> Tensor:
            out = torch.empty((num_rows, num_outputs), device=self._device)
            kernel[grid](
                x, *weights, out, num_rows, num_outputs, num_inputs, ROWS=_TILE, OUTPUTS=_TILE_OUTPUTS, BLOCK=_BLOCK
            )
            return out

        return self._prepared(run)

    def _paged_attention(self, inputs: AttentionInputs) -> PreparedKernel:
        query, table = self._at(inputs.query), self._at(inputs.block_table)
        keys, values = (self._at(array) for array in inputs.paged())
        num_queries, num_heads, head_dim = query.shape
        _, num_kv_heads, block_size, _ = values.shape

        def run() -> Tensor:
            out = torch.empty_like(query)
            _paged_attention[(num_queries, num_kv_heads)](
                query, keys, values, table, out, num_heads, num_kv_heads, head_dim, block_size, inputs.first_num_keys,
                head_dim**-0.5, GROUP=triton.next_power_of_2(num_heads // num_kv_heads),
                DIM=triton.next_power_of_2(head_dim), SLOTS=triton.next_power_of_2(block_size),
            )  # fmt: skip
            return out

        return self._prepared(run)

    def _halves(self, blocks: NDArray[np.uint8], at: int) -> Tensor:
        """Return the float16 at a byte of every block as float32 [num_outputs, num_blocks]."""
        halves = np.ascontiguousarray(blocks[:, :, at : at + 2]).view(np.float16)[:, :, 0]
        return self._at(halves.astype(np.float32))

    def _at(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _prepared(self, run: Callable[[], Tensor]) -> PreparedKernel:
        return PreparedKernel(run, to_numpy, lambda: torch.cuda.synchronize(self._device))
