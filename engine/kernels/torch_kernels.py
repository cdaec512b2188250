"""The same kernels by torch's own operators, on a CPU or a CUDA device, in float32."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name that everybody knows it by
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
from engine.kernels.prepared import KernelMakers, PreparedKernel, nothing


def rope(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate [num_tokens, num_heads, head_dim] by angles [num_tokens, 1, head_dim / 2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def paged_attention(query: Tensor, keys: Tensor, values: Tensor, block_table: Tensor, is_seen: Tensor) -> Tensor:
    """Gather the blocks, then torch's scaled dot product attention; is_seen: bool [num_queries, num_keys]."""
    _, num_heads, head_dim = query.shape
    num_kv_heads, num_keys = keys.shape[1], is_seen.shape[1]
    k = keys[block_table].permute(1, 0, 3, 2).reshape(num_kv_heads, -1, head_dim)[:, :num_keys]
    v = values[block_table].permute(1, 0, 2, 3).reshape(num_kv_heads, -1, head_dim)[:, :num_keys]
    attended = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None], k[None], v[None], attn_mask=is_seen, enable_gqa=num_heads != num_kv_heads
    )
    return attended[0].transpose(0, 1)


class TorchKernels:
    """The kernels on one device; inputs are moved there once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.makers: KernelMakers = {
            "rms_norm": self._rms_norm,
            "softmax": self._softmax,
            "swiglu": self._swiglu,
            "rope": self._rope,
            "matmul_int8": self._matmul,
            "matmul_int4": self._matmul,
            "paged_attention": self._paged_attention,
        }

    def _rms_norm(self, inputs: RmsNormInputs) -> PreparedKernel:
        x, weight = self._at(inputs.x), self._at(inputs.weight)
        return self._prepared(lambda: F.rms_norm(x, weight.shape, weight, inputs.epsilon))

    def _softmax(self, inputs: SoftmaxInputs) -> PreparedKernel:
        x = self._at(inputs.x)
        return self._prepared(lambda: torch.softmax(x, dim=-1))

    def _swiglu(self, inputs: SwigluInputs) -> PreparedKernel:
        gate, up = self._at(inputs.gate), self._at(inputs.up)
        return self._prepared(lambda: F.silu(gate) * up)

    def _rope(self, inputs: RopeInputs) -> PreparedKernel:
        x, cosines, sines = self._at(inputs.x), self._at(inputs.cosines)[:, None], self._at(inputs.sines)[:, None]
        return self._prepared(lambda: rope(x, cosines, sines))

    def _matmul(self, inputs: MatmulInputs) -> PreparedKernel:
        x, weights = self._at(inputs.x), self._at(inputs.dequantized())
        return self._prepared(lambda: F.linear(x, weights))

    def _paged_attention(self, inputs: AttentionInputs) -> PreparedKernel:
        query, table = self._at(inputs.query), self._at(inputs.block_table.astype(np.int64))
        keys, values = (self._at(array) for array in inputs.paged())
        num_queries = len(inputs.query)
        last_seen = inputs.first_num_keys + torch.arange(num_queries, device=self._device)[:, None]
        num_keys = inputs.first_num_keys + num_queries - 1
        is_seen = torch.arange(num_keys, device=self._device) < last_seen
        return self._prepared(lambda: paged_attention(query, keys, values, table, is_seen))

    def _at(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _prepared(self, run: Callable[[], Tensor]) -> PreparedKernel:
        wait = partial(torch.cuda.synchronize, self._device) if self._device.type == "cuda" else nothing
        return PreparedKernel(run, to_numpy, wait)


def to_numpy(result: Tensor) -> NDArray[np.float32]:
    """Return a result in main memory."""
    array: NDArray[np.float32] = result.cpu().numpy()
    return array
