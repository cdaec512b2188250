"""The native CPU executor: one call into our own C++ runs a whole step, without the interpreter lock."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.execution.forward_batch import ForwardBatch
from engine.model.rope import inverse_frequencies
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights, WeightTensor

ABI_VERSION = 1
NATIVE_ENCODINGS = frozenset({"F32", "Q4_0", "Q4_1", "Q8_0"})

LayerObserver = Callable[[int, NDArray[np.float32]], None]


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
            "max_positions", "qkv_bias", "qk_norm", "tie_word_embeddings", "num_blocks", "block_size", "max_tokens",
            "num_threads",
        )),
        ("norm_epsilon", ctypes.c_float),
    ]  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_seqs", "max_blocks", "num_logits", "num_copies")),
        *((name, ctypes.c_void_p) for name in (
            "token_ids", "positions", "slot_mapping", "query_start", "seq_lens", "block_tables", "logits_rows",
            "block_copies",
        )),
    ]  # fmt: skip


_Observer = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.POINTER(ctypes.c_float), ctypes.c_int32, ctypes.c_int32)


class NativeLibrary:
    """The shared library, its functions typed.

    Raises:
        ConfigError: it can't be loaded or has another ABI version.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.handle = ctypes.CDLL(str(path))
        except OSError as error:
            raise ConfigError(f"the native kernels can't be loaded: {error}") from None
        lib = self.handle
        lib.pellucid_abi_version.restype = ctypes.c_int32
        if lib.pellucid_abi_version() != ABI_VERSION:
            raise ConfigError(f"the native kernels have ABI {lib.pellucid_abi_version()}, {ABI_VERSION} is needed")
        lib.pellucid_instruction_set.restype = ctypes.c_char_p
        lib.pellucid_instruction_set.argtypes = [ctypes.c_char_p]
        lib.pellucid_create.restype = ctypes.c_void_p
        lib.pellucid_create.argtypes = [
            ctypes.POINTER(_Shape), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_set_weight.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_forward.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(_Batch), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_destroy.argtypes = [ctypes.c_void_p]
        lib.pellucid_destroy.restype = None

    def instruction_set(self, name: str = "auto") -> str | None:
        """Return the instruction set that `name` would use on this machine; None when it lacks it."""
        found = self.handle.pellucid_instruction_set(name.encode())
        return found.decode() if found else None


class NativeExecutor:
    """Runs a decoder with our own kernels over weights in the file's precision.

    A row's result depends on neither the other rows, the chunking, the number of threads nor the schedule: equal
    requests give equal bits. KV is float32.

    Args:
        spec, weights: the model; encodings without a kernel of their own are dequantised to float32.
        num_blocks, block_size: the KV pool.
        max_tokens: most tokens of one step.
        threads: compute threads.
        instruction_set: `auto`, `avx512`, `avx2` or `portable`.
        exact: dequantise everything to float32 (the reference precision).
    """

    name = "native"

    def __init__(
        self,
        spec: DecoderSpec,
        weights: Weights,
        *,
        library: NativeLibrary,
        num_blocks: int,
        block_size: int,
        max_tokens: int,
        max_positions: int,
        threads: int,
        instruction_set: str = "auto",
        exact: bool = False,
    ) -> None:
        self._library = library
        self._spec = spec
        self._max_tokens = max_tokens
        self._message = ctypes.create_string_buffer(300)
        shape = _Shape(
            vocab_size=spec.vocab_size, hidden_size=spec.hidden_size, intermediate_size=spec.intermediate_size,
            num_layers=spec.num_layers, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim, max_positions=max_positions, qkv_bias=spec.qkv_bias, qk_norm=spec.qk_norm,
            tie_word_embeddings=spec.tie_word_embeddings, num_blocks=num_blocks, block_size=block_size,
            max_tokens=max_tokens, num_threads=threads, norm_epsilon=spec.norm_eps,
        )  # fmt: skip
        angles = np.arange(max_positions, dtype=np.float64)[:, None] * inverse_frequencies(spec)
        cosines = np.cos(angles).astype(np.float32)
        sines = np.sin(angles).astype(np.float32)
        self._decoder = library.handle.pellucid_create(
            ctypes.byref(shape), cosines.ctypes.data, sines.ctypes.data, instruction_set.encode(), *self._error_buffer()
        )
        if not self._decoder:
            raise ConfigError(f"the native executor: {self._message.value.decode()}")
        self._observer: object = None
        for name, tensor in weights.items():
            self._set_weight(name, tensor, exact=exact)

    def _error_buffer(self) -> tuple[ctypes.Array[ctypes.c_char], int]:
        return self._message, len(self._message)

    def _set_weight(self, name: str, tensor: WeightTensor, *, exact: bool) -> None:
        rows, columns = tensor.shape if len(tensor.shape) == 2 else (1, tensor.shape[0])
        keep = len(tensor.shape) == 2 and not exact and tensor.encoding in NATIVE_ENCODINGS and columns % 32 == 0
        encoding = tensor.encoding if keep else "F32"
        data = np.ascontiguousarray(tensor.data if keep else tensor.to_float32())
        failed = self._library.handle.pellucid_set_weight(
            self._decoder, name.encode(), encoding.encode(), data.ctypes.data, rows, columns, *self._error_buffer()
        )
        if failed:
            raise ConfigError(f"the native executor: {self._message.value.decode()}")

    def observe_layers(self, observer: LayerObserver | None) -> None:
        """Call `observer(layer, residual [num_tokens, hidden_size])` after every layer; None ends it."""
        if observer is None:
            self._observer = None
            return

        def called(layer: int, residual: ctypes._Pointer[ctypes.c_float], num_tokens: int, hidden_size: int) -> None:
            observer(layer, np.ctypeslib.as_array(residual, (num_tokens, hidden_size)).copy())

        self._observer = _Observer(called)

    def execute(self, batch: ForwardBatch) -> NDArray[np.float32]:
        """Run the step; returns float32 [num_logits, vocab_size]."""
        assert batch.num_tokens <= self._max_tokens, (batch.num_tokens, self._max_tokens)
        logits = np.empty((len(batch.logits_rows), self._spec.vocab_size), dtype=np.float32)
        wire = _Batch(
            num_tokens=batch.num_tokens, num_seqs=batch.num_seqs, max_blocks=batch.block_tables.shape[1],
            num_logits=len(batch.logits_rows), num_copies=len(batch.block_copies),
            token_ids=batch.token_ids.ctypes.data, positions=batch.positions.ctypes.data,
            slot_mapping=batch.slot_mapping.ctypes.data, query_start=batch.query_start.ctypes.data,
            seq_lens=batch.seq_lens.ctypes.data, block_tables=batch.block_tables.ctypes.data,
            logits_rows=batch.logits_rows.ctypes.data, block_copies=batch.block_copies.ctypes.data,
        )  # fmt: skip
        failed = self._library.handle.pellucid_forward(
            self._decoder, ctypes.byref(wire), logits.ctypes.data, self._observer, *self._error_buffer()
        )
        if failed:
            raise RuntimeError(f"the native executor: {self._message.value.decode()}")
        return logits

    def close(self) -> None:
        """Free the weights, the KV pool and the threads; further calls are errors."""
        if self._decoder:
            self._library.handle.pellucid_destroy(self._decoder)
            self._decoder = None
