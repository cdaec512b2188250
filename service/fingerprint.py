"""`system_fingerprint`: equal for equal answers to equal seeds, as far as the server's configuration decides."""

import hashlib

from engine.messages import EngineInfo


def fingerprint(info: EngineInfo) -> str:
    """Return a short name of model, executor, device and dtype."""
    parts = (info.model, info.architecture, info.executor, info.device, info.dtype)
    return "fp_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
