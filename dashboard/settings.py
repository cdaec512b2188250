"""The dashboard's only reader of the environment."""

import os
from collections.abc import Mapping


def environment() -> Mapping[str, str]:
    """Return the process's environment, where the API keys of targets are."""
    return os.environ
