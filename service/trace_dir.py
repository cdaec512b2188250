"""Where recordings go: looked at before the server starts, so that nobody learns of it when there is much to record."""

import os
import tempfile
from pathlib import Path

from engine.errors import ConfigError


def check_trace_dir(directory: Path) -> None:
    """Make the directory and write a file in it that is gone at once.

    Raises:
        ConfigError: it can't be.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"--trace-dir {directory} can't be written to: {reason}") from None
