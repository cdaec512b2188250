"""The draw of `draw.py` in our own kernels, for scores on the CPU: one pass over a row, and sorting only its head."""

from collections.abc import Sequence as Many

import numpy as np
from numpy.typing import NDArray

from engine.kernels.native_library import NativeLibrary
from engine.sampling_params import SamplingParams


class NativeDraw:
    """A HostDraw with the kernels of one instruction set.

    Every rule is that of `draw.py`. Weights are computed in float32 with another exponential (they differ by some
    3e-7 of themselves, and vanish below e^-87), so the same uniform number gives the same token unless it falls on so
    fine an edge between two.

    Raises:
        ConfigError: in a call, when the machine lacks the instruction set.
    """

    def __init__(self, library: NativeLibrary, instruction_set: str = "auto") -> None:
        self._library = library
        self._instruction_set = instruction_set

    def __call__(
        self, scores: NDArray[np.float32], rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
    ) -> list[int]:
        assert scores.dtype == np.float32
        tokens: list[int] = self._library.draw(
            self._instruction_set,
            np.ascontiguousarray(scores),
            rows=np.array(rows, dtype=np.int64),
            temperatures=np.array([p.temperature for p in params], dtype=np.float32),
            top_ks=np.array([p.top_k for p in params], dtype=np.int64),
            top_ps=np.array([p.top_p for p in params], dtype=np.float64),
            min_ps=np.array([p.min_p for p in params], dtype=np.float32),
            uniforms=uniforms,
        ).tolist()
        return tokens
