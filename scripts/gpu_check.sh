#!/usr/bin/env bash
# Runs every test that needs a CUDA device: scripts/gpu_check.sh [PYTHON]. Needs pytest, pytest-timeout, torch, numpy,
# msgspec and gguf, and nothing else of the project's dependencies: only the files that hold such tests are collected.
# Prints the counts; fails when a test fails or is skipped, and when there is no device.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
"$python" - <<'CHECK'
import sys

try:
    import torch
except ImportError:
    sys.exit("gpu_check: this Python has no torch")
if not torch.cuda.is_available():
    sys.exit(f"gpu_check: torch {torch.__version__} sees no CUDA device")
print(f"gpu_check: {torch.cuda.get_device_name()}, torch {torch.__version__}")
CHECK
log=$(mktemp)
trap 'rm -f "$log"' EXIT
mapfile -t files < <(grep -rl 'pytest\.mark\.gpu' --include='test_*.py' tests)
"$python" -m pytest -q -m gpu -p no:cacheprovider "${files[@]}" 2>&1 | tee "$log"
summary=$(tail -n 1 "$log")
echo "gpu_check: $summary"
if [[ $summary == *skipped* ]]; then
  echo "gpu_check: a test was skipped although there is a device" >&2
  exit 1
fi
