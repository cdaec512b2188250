"""Models from the Hugging Face hub, through its own client and its own cache."""

import re
from pathlib import Path
from typing import Final

from engine.errors import ModelLoadError

# Neither pickled weights nor second copies (`consolidated.safetensors`).
_WANTED: Final = ["*.json", "model*.safetensors", "*.jinja"]
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_hub_id(name: str) -> bool:
    """Tell whether `name` has the form owner/model."""
    return _HUB_ID.fullmatch(name) is not None


def fetch_from_hub(hub_id: str) -> Path:
    """Return the directory of a model's files, downloading what isn't in the hub client's cache.

    Raises:
        ModelLoadError: no such model, no permission, or no network and nothing in the cache.
    """
    # Imported here: the client costs every start half a second, and most starts have their model on disk.
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_WANTED))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelLoadError(f"`model` {hub_id!r} can't be fetched from the hub: {reason}") from None
