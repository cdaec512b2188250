"""A whole file as read-only bytes, without reading it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelLoadError


def map_file(path: Path) -> NDArray[np.uint8]:
    """Map a file; its pages are read when touched and shared by every process that maps it.

    Raises:
        ModelLoadError: the file is empty or can't be opened.
    """
    try:
        if path.stat().st_size == 0:
            raise ModelLoadError("the file is empty")
        # A plain ndarray over the map: np.memmap's own slices carry attributes that cost more than the view.
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise ModelLoadError(f"can't be opened: {error.strerror}") from None
