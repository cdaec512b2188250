"""A kernel of one backend with its inputs where the backend wants them, so that only the kernel is measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def nothing() -> None:
    """Wait for nothing: the kernel has ended when its call returns."""


@dataclass(frozen=True, slots=True)
class PreparedKernel:
    """Ready to run any number of times.

    Attributes:
        run: compute; what it returns is the backend's own kind of array.
        to_numpy: turn that into float32 in main memory.
        synchronize: wait until the device has done what `run` asked for.
    """

    run: Callable[[], Any]
    to_numpy: Callable[[Any], NDArray[np.float32]]
    synchronize: Callable[[], None] = nothing


# By a kernel's name; the argument is its dataclass of kernel_inputs.
KernelMakers = Mapping[str, Callable[[Any], PreparedKernel]]
