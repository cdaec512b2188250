"""Setting: where downloaded models are kept."""

import os
from pathlib import Path


def models_cache_dir() -> Path:
    """Return `pellucid/models` in the user's cache directory: `$XDG_CACHE_HOME`, else `~/.cache`. It may be absent."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rule: a relative path is invalid and must be ignored.
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "pellucid" / "models"
