"""JsonFile: typed access to one JSON object in a model directory, every mismatch an error that names file and field."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import ModelLoadError

MAX_JSON_BYTES: Final = 256 << 20


class JsonFile:
    """The fields of an object; explicit null counts as absent.

    Args:
        label: how errors name the object (`config.json`, `config.json: rope_scaling`).
        fields: the object.
    """

    def __init__(self, label: str, fields: Mapping[str, Any]) -> None:
        self.label = label
        self._fields = fields

    @classmethod
    def read(cls, path: Path) -> "JsonFile":
        """Parse a file.

        Raises:
            ModelLoadError: it can't be opened, is too large, isn't JSON, or isn't an object.
        """
        try:
            num_bytes = path.stat().st_size
            if num_bytes > MAX_JSON_BYTES:
                raise ModelLoadError(f"{path.name}: {num_bytes} bytes are more than {MAX_JSON_BYTES}")
            fields = json.loads(path.read_bytes())
        except OSError as error:
            raise ModelLoadError(f"{path.name}: can't be opened: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ModelLoadError(f"{path.name}: isn't JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ModelLoadError(f"{path.name}: must be an object")
        return cls(path.name, fields)

    @classmethod
    def read_if_present(cls, path: Path) -> "JsonFile":
        """Parse a file, or stand for an empty object when there is none."""
        return cls.read(path) if path.exists() else cls(path.name, {})

    def get(self, key: str) -> Any:
        return self._fields.get(key)

    def get_int(self, key: str, *, low: int = 0, high: int = (1 << 31) - 1) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_kind(key, "an integer", value)
        if not low <= value <= high:
            raise ModelLoadError(f"{self.label}: `{key}` must lie in [{low}, {high}], found {repr(value)[:60]}")
        return value

    def require_int(self, key: str, *, low: int = 1) -> int:
        value = self.get_int(key, low=low)
        if value is None:
            raise self._missing(key)
        return value

    def get_float(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self._wrong_kind(key, "a finite number", value)
        return float(value)

    def require_float(self, key: str) -> float:
        value = self.get_float(key)
        if value is None:
            raise self._missing(key)
        return value

    def get_bool(self, key: str) -> bool | None:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong_kind(key, "true or false", value)
        return value

    def get_string(self, key: str) -> str | None:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong_kind(key, "a string", value)
        return value

    def get_object(self, key: str) -> "JsonFile | None":
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong_kind(key, "an object", value)
        return JsonFile(f"{self.label}: {key}", value)

    def _missing(self, key: str) -> ModelLoadError:
        return ModelLoadError(f"{self.label}: `{key}` is missing")

    def _wrong_kind(self, key: str, wanted: str, value: object) -> ModelLoadError:
        return ModelLoadError(f"{self.label}: `{key}` must be {wanted}, found {repr(value)[:60]}")
