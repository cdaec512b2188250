"""Metadata: typed access to a GGUF file's key-value pairs, every mismatch an error that names the key."""

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelLoadError
from engine.model.gguf_header import MetadataValue

T = TypeVar("T")


class Metadata:
    """Key-value pairs; `get_*` return None for an absent key, `require_*` refuse it."""

    def __init__(self, pairs: Mapping[str, MetadataValue]) -> None:
        self._pairs = pairs

    def __contains__(self, key: str) -> bool:
        return key in self._pairs

    def get_int(self, key: str, *, low: int = 0, high: int = (1 << 31) - 1) -> int | None:
        """Return an integer in [low, high]."""
        value = self._pairs.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_kind(key, "an integer", value)
        if not low <= value <= high:
            raise ModelLoadError(f"`{key}` must lie in [{low}, {high}], found {value}")
        return value

    def require_int(self, key: str, *, low: int = 0) -> int:
        value = self.get_int(key, low=low)
        return _present(key, value)

    def get_float(self, key: str) -> float | None:
        """Return a finite number."""
        value = self._pairs.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong_kind(key, "a number", value)
        if not math.isfinite(value):
            raise ModelLoadError(f"`{key}` must be finite, found {value}")
        return float(value)

    def require_float(self, key: str) -> float:
        return _present(key, self.get_float(key))

    def get_bool(self, key: str) -> bool | None:
        value = self._pairs.get(key)
        if value is not None and not isinstance(value, bool):
            raise _wrong_kind(key, "a boolean", value)
        return value

    def get_string(self, key: str) -> str | None:
        value = self._pairs.get(key)
        if value is not None and not isinstance(value, str):
            raise _wrong_kind(key, "a string", value)
        return value

    def require_string(self, key: str) -> str:
        return _present(key, self.get_string(key))

    def get_strings(self, key: str) -> tuple[str, ...] | None:
        value = self._pairs.get(key)
        if value is not None and not isinstance(value, tuple):
            raise _wrong_kind(key, "an array of strings", value)
        return value

    def require_strings(self, key: str) -> tuple[str, ...]:
        return _present(key, self.get_strings(key))

    def get_numbers(self, key: str) -> NDArray[np.generic] | None:
        value = self._pairs.get(key)
        if value is not None and not isinstance(value, np.ndarray):
            raise _wrong_kind(key, "an array of numbers", value)
        return value


def _present(key: str, value: T | None) -> T:
    if value is None:
        raise ModelLoadError(f"`{key}` is missing from the metadata")
    return value


def _wrong_kind(key: str, wanted: str, value: MetadataValue) -> ModelLoadError:
    if isinstance(value, np.ndarray):
        found = f"an array of {len(value)} numbers"
    elif isinstance(value, tuple):
        found = f"an array of {len(value)} strings"
    else:
        found = f"{str(value)[:60]!r}"
    return ModelLoadError(f"`{key}` must be {wanted}, found {found}")
