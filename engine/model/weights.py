"""Canonical weights: every matrix under its DecoderSpec name, in the precision of the file it came from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class WeightTensor(Protocol):
    """One weight, still as the file holds it.

    Attributes:
        name: canonical name (DecoderSpec).
        shape: of the dequantised tensor, [out_features, in_features] or [size].
        encoding: `F32`, `F16`, `BF16`, `Q8_0`, `Q4_1`, ... (ggml's names).
        data: uint8 [out_features, bytes_per_row] (or [1, bytes] for vectors): the raw rows, for kernels that take the
            file's own precision.
        num_bytes: size of `data`, without making it.
    """

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def encoding(self) -> str: ...

    @property
    def data(self) -> NDArray[np.uint8]: ...

    @property
    def num_bytes(self) -> int: ...

    def to_float32(self) -> NDArray[np.float32]:
        """Return a dequantised copy of `shape`."""
        ...


@dataclass(frozen=True, slots=True)
class Weights(Mapping[str, WeightTensor]):
    """All weights of a model, by canonical name; exactly those of DecoderSpec.weight_shapes()."""

    tensors: Mapping[str, WeightTensor]

    def __getitem__(self, name: str) -> WeightTensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def num_parameters(self) -> int:
        return sum(int(np.prod(tensor.shape)) for tensor in self.tensors.values())
