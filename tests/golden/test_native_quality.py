"""How far the native executor's file precision moves next-token distributions from exact float32, on real text.

Weights are the file's in both; what differs is that activations are rounded to 8 bits before each packed matrix, and
keys and values to the precision of the cache.
"""

import importlib
import sys

import numpy as np
import pytest
import torch

from engine.config import KvDtypeName
from engine.model.load import LoadedModel, load_model
from engine.text.tokenizer import build_tokenizer
from tests.support.native import library_for, native_executor
from tests.support.paged_runs import PagedRun

BLOCK_SIZE = 16
NUM_BLOCKS = 64
WINDOW = 128
DOCUMENTED = (
    "argparse", "asyncio", "collections", "decimal", "difflib", "doctest", "email", "fractions", "heapq", "imaplib",
    "json", "logging", "optparse", "pickle", "random", "re", "shlex", "statistics", "string", "textwrap", "threading",
    "timeit", "types", "unittest", "urllib", "uuid", "warnings", "zipfile",
)  # fmt: skip

pytestmark = pytest.mark.model


def windows(model: LoadedModel, count: int) -> list[list[int]]:
    """Return `count` pieces of WINDOW tokens from the standard library's docstrings."""
    texts = []
    for name in DOCUMENTED:
        module = importlib.import_module(name)
        for thing in (module, *vars(module).values()):
            doc = getattr(thing, "__doc__", None)
            if isinstance(doc, str) and len(doc) > 400:
                texts.append(doc)
    ids = build_tokenizer(model.tokenizer).encode("\n\n".join(dict.fromkeys(texts)))
    pieces = [ids[i : i + WINDOW] for i in range(0, len(ids) - WINDOW, WINDOW)]
    assert len(pieces) >= count
    return pieces[:: len(pieces) // count][:count]


def divergences(model: LoadedModel, count: int, kv_dtype: KvDtypeName, **settings: bool) -> np.ndarray:
    """Return KL(exact || file precision, or what `settings` say; with this KV), nats, at every position."""
    runs = []
    for precision, dtype in (({"exact": True}, "float32"), (settings, kv_dtype)):
        executor = native_executor(
            model.spec, model.weights, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_tokens=WINDOW,
            kv_dtype=dtype, **precision,
        )  # fmt: skip
        runs.append(PagedRun(executor, BLOCK_SIZE, NUM_BLOCKS))
    found = []
    for number, piece in enumerate(windows(model, count)):
        rows = []
        for run in runs:
            seq = run.add(str(number), piece, all_rows=True)
            seq.block_table = list(range(WINDOW // BLOCK_SIZE))
            run.step((seq, WINDOW))
            rows.append(torch.stack([run.logits.pop((str(number), p)) for p in range(WINDOW)]).double())
        exact_log, file_log = (torch.log_softmax(logits, dim=1) for logits in rows)
        found.append((exact_log.exp() * (exact_log - file_log)).sum(dim=1).numpy())
    return np.concatenate(found)


@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_native_file_precision_is_close_to_exact_on_real_text(
    kv_dtype: KvDtypeName, capsys: pytest.CaptureFixture[str]
) -> None:
    kl = divergences(load_model("smollm2-135m-instruct"), 4, kv_dtype)
    with capsys.disabled():
        sys.stdout.write(
            f"\nKL, KV in {kv_dtype}, {len(kl)} tokens: mean {kl.mean():.5f}, largest {kl.max():.4f} nats\n"
        )
    assert len(kl) == 4 * WINDOW
    assert kl.min() > -1e-9
    assert kl.mean() < 0.01
    assert kl.max() < 0.2


def test_native_bfloat16_is_closer_to_exact_than_integers_are_on_real_text() -> None:
    library_for("amx")
    model = load_model("smollm2-135m-instruct")
    integers = divergences(model, 4, "bfloat16")
    floats = divergences(model, 4, "bfloat16", bfloat16=True)
    assert floats.min() > -1e-9
    assert floats.mean() < 0.6 * integers.mean()
    assert np.quantile(floats, 0.99) < 0.6 * np.quantile(integers, 0.99)
