#!/usr/bin/env python3
"""How much a precision costs in quality: KL divergence of next-token distributions from exact float32, on real text.

    .venv/bin/python scripts/quality.py [FILE.gguf ...] [--kv-dtype int8] [--llama-source DIR --llama-build DIR]

Exact is float32 arithmetic on the weights as the file has them, dequantised: what is measured is the rounding of the
engine, not what the quantisation of the file has lost.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.precision.command import main

if __name__ == "__main__":
    sys.exit(main())
