"""Loads that outlive the process: one JSON file each in a directory, the newest ones kept."""

import logging
from pathlib import Path

import msgspec

from dashboard.load_record import SCHEMA, VERSION, LoadRecord

logger = logging.getLogger("pellucid.dashboard")


class LoadStore:
    """Reads and writes the files of a directory, which is made if it is missing.

    Args:
        directory: None keeps nothing.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def load(self, *, most: int) -> list[LoadRecord]:
        """Return the newest records, oldest first; a file that can't be read is named in the log and left alone."""
        if self._directory is None:
            return []
        self._directory.mkdir(parents=True, exist_ok=True)
        records = []
        for path in self._directory.glob("load-*.json"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=LoadRecord)
            except (OSError, msgspec.DecodeError) as error:
                logger.warning("%s is left out: %s", path, error)
                continue
            if (record.schema, record.version) == (SCHEMA, VERSION) and record.state != "running":
                records.append(record)
        return sorted(records, key=lambda record: record.number)[-most:]

    def save(self, record: LoadRecord) -> None:
        """Write a record; a crash in the middle leaves the file as it was."""
        if self._directory is None:
            return
        path = self._path(record)
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(record))
        part.replace(path)

    def forget(self, record: LoadRecord) -> None:
        """Delete a record's file, if there is one."""
        if self._directory is not None:
            self._path(record).unlink(missing_ok=True)

    def _path(self, record: LoadRecord) -> Path:
        assert self._directory is not None
        return self._directory / f"load-{record.number}.json"
