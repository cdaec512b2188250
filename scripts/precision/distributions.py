"""Next-token logits of whole windows of text, from our executors and from llama.cpp."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine.execution.executor import Executor
from engine.execution.forward_batch import ForwardBatch

BLOCK_SIZE = 16

LogitsOf = Callable[[Sequence[int]], torch.Tensor]
"""Token ids [window] to float32 logits [window, vocab_size], valid until the next call."""


def from_executor(executor: Executor[torch.Tensor | NDArray[np.float32]]) -> LogitsOf:
    """Compute a window as one fresh sequence, the logits of every position wanted."""

    def logits_of(token_ids: Sequence[int]) -> torch.Tensor:
        count = len(token_ids)
        positions = np.arange(count, dtype=np.int64)
        logits = executor.execute(
            ForwardBatch(
                token_ids=np.array(token_ids, dtype=np.int64),
                positions=positions,
                slot_mapping=positions,
                query_start=np.array([0, count], dtype=np.int32),
                seq_lens=np.array([count], dtype=np.int32),
                block_tables=np.arange(-(-count // BLOCK_SIZE), dtype=np.int32)[None, :],
                logits_rows=positions,
                block_copies=np.empty((0, 2), dtype=np.int64),
            )
        )
        return torch.as_tensor(logits)

    return logits_of


def build_llama_cpp_program(source: Path, build: Path, target: Path) -> Path:
    """Compile the logits program against llama.cpp's headers in `source` and its libraries in `build`/bin."""
    libraries = build / "bin"
    command = [
        "g++", "-O2", "-std=c++17", f"-I{source / 'include'}", f"-I{source / 'ggml' / 'include'}",
        str(Path(__file__).with_name("llama_cpp_logits.cpp")), f"-L{libraries}", f"-Wl,-rpath,{libraries}",
        "-lllama", "-lggml", "-lggml-base", "-o", str(target),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return target


@contextmanager
def from_llama_cpp(program: Path, model: Path, *, window: int, vocab_size: int, threads: int) -> Iterator[LogitsOf]:
    """Run the program for the length of the context; raises RuntimeError when it ends early."""
    process = subprocess.Popen(
        [str(program), str(model), str(threads), str(window)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    num_bytes = window * vocab_size * 4

    def logits_of(token_ids: Sequence[int]) -> torch.Tensor:
        stdin.write(np.array(token_ids, dtype=np.int32).tobytes())
        stdin.flush()
        data = stdout.read(num_bytes)
        if len(data) != num_bytes:
            raise RuntimeError(f"{program} ended early with {model}")
        return torch.frombuffer(bytearray(data), dtype=torch.float32).view(window, vocab_size)

    try:
        yield logits_of
    finally:
        stdin.close()
        stdout.close()
        process.wait()
