"""Whether CUDA can be used, without importing torch where it surely can't."""

import sys
from pathlib import Path

_LINUX_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))  # a driver's, WSL's, ROCm's


def is_cuda_available() -> bool:
    """Ask torch, if the system has any device that it could find."""
    if sys.platform == "linux" and not any(device.exists() for device in _LINUX_DEVICES):
        return False
    import torch  # only here: see torch_runner.py

    return torch.cuda.is_available()
