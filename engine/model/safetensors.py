"""Tensors of a directory of safetensors files, one or sharded, memory-mapped.

The `safetensors` library checks each file (header size, JSON, offsets without gap or overlap, sizes that match shapes);
it can't hand bfloat16 to numpy, so the places of the checked tensors are read out of the header here.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from engine.errors import ModelLoadError
from engine.model.json_file import JsonFile
from engine.model.mapped_file import map_file

SUPPORTED_DTYPES: Final = ("F32", "F16", "BF16")
SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
MAX_NAME_LENGTH: Final = 255
_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        dtype: safetensors' name (`F32`, `BF16`, ...; also those that can't be decoded here).
        data: its bytes, a view into the file.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: NDArray[np.uint8]


def open_safetensors(directory: Path) -> dict[str, StoredTensor]:
    """Map every tensor of a directory.

    Raises:
        ModelLoadError: no file or index, a shard that is missing or damaged, an index and shards that disagree.
    """
    if (directory / INDEX_FILE).exists():
        return _open_sharded(directory)
    if not (directory / SINGLE_FILE).exists():
        raise ModelLoadError(f"has neither {SINGLE_FILE} nor {INDEX_FILE}; weights in other formats aren't read")
    return _open_file(directory / SINGLE_FILE)


def _open_sharded(directory: Path) -> dict[str, StoredTensor]:
    index = JsonFile.read(directory / INDEX_FILE).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(shard, str) for shard in index.values()):
        raise ModelLoadError(f"{INDEX_FILE}: `weight_map` must be an object of tensor names and file names")
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(index.values())):
        if Path(shard).name != shard or not shard.isprintable() or len(shard) > MAX_NAME_LENGTH:
            raise ModelLoadError(f"{INDEX_FILE}: `weight_map` names {shard[:60]!r}, which isn't a plain file name")
        if not (directory / shard).exists():
            raise ModelLoadError(f"shard {shard} is missing ({INDEX_FILE} names it)")
        for name, tensor in _open_file(directory / shard).items():
            if index.get(name) != shard:
                raise ModelLoadError(f"{shard}: tensor `{name}` isn't listed for this shard in {INDEX_FILE}")
            tensors[name] = tensor
    if missing := index.keys() - tensors.keys():
        name = min(missing)
        raise ModelLoadError(f"{index[name]}: tensor {name[:MAX_NAME_LENGTH]!r} is missing ({INDEX_FILE} lists it)")
    return tensors


def _open_file(path: Path) -> dict[str, StoredTensor]:
    try:
        file = map_file(path)
        with safe_open(path, framework="numpy"):
            pass
    except SafetensorError as error:
        raise ModelLoadError(f"{path.name}: {' '.join(str(error).split())[:200]}") from None
    except ModelLoadError as error:
        raise ModelLoadError(f"{path.name}: {error.message}") from None
    data_start = _LENGTH_BYTES + int(file[:_LENGTH_BYTES].view("<u8")[0])
    header = json.loads(file[_LENGTH_BYTES:data_start].tobytes())
    header.pop("__metadata__", None)
    tensors: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise ModelLoadError(
                f"{path.name}: tensor names must be printable and 1 to {MAX_NAME_LENGTH} long, found {name[:60]!r}"
            )
        begin, end = entry["data_offsets"]
        tensors[name] = StoredTensor(
            name, tuple(entry["shape"]), entry["dtype"], file[data_start + begin : data_start + end]
        )
    return tensors
