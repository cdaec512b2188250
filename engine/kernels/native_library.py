"""The native kernels' shared library through ctypes: the C structures, and one decoder as an object that frees itself.

ctypes lets go of the interpreter lock for the length of a call, and one call runs a whole step, so what a call costs
(microseconds) doesn't show.
"""

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.execution.forward_batch import ForwardBatch
from engine.kernels.artefact_header import misfit

ABI_VERSION = 4
KV_FORMATS = {"float32": 0, "bfloat16": 1, "float16": 2, "int8": 3}  # mirrors KvFormat in native/kv_layout.h
INSTRUCTION_SETS = ("amx", "avx512_bf16", "avx512", "avx2", "portable")  # best first

LayerObserver = Callable[[int, NDArray[np.float32]], None]


class DecoderShape(ctypes.Structure):
    """Mirrors PellucidDecoderShape in native/decoder.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
            "max_positions", "qkv_bias", "qk_norm", "tie_word_embeddings", "num_blocks", "block_size", "max_tokens",
            "num_threads", "kv_format",
        )),
        ("norm_epsilon", ctypes.c_float),
    ]  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_seqs", "max_blocks", "num_logits", "num_copies")),
        *((name, ctypes.c_void_p) for name in (
            "token_ids", "positions", "slot_mapping", "query_start", "block_tables", "logits_rows", "block_copies",
        )),
    ]  # fmt: skip


_Observer = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.POINTER(ctypes.c_float), ctypes.c_int32, ctypes.c_int32)


class NativeLibrary:
    """The shared library, its functions typed.

    Attributes:
        path: where it lies.
        handle: the loaded library.

    Raises:
        ConfigError: it can't be loaded or has another ABI version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        why = misfit(path)
        if why:
            raise ConfigError(f"the native kernels can't be loaded: {path}: {why}")
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
            ctypes.POINTER(DecoderShape), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p,
            ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_set_weight.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_forward.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(_Batch), ctypes.c_void_p, _Observer, ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_draw.argtypes = [
            ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, *[ctypes.c_void_p] * 7,
            ctypes.c_char_p, ctypes.c_int32,
        ]  # fmt: skip
        lib.pellucid_destroy.argtypes = [ctypes.c_void_p]
        lib.pellucid_destroy.restype = None

    def draw(
        self,
        instruction_set: str,
        scores: NDArray[np.float32],
        *,
        rows: NDArray[np.int64],
        temperatures: NDArray[np.float32],
        top_ks: NDArray[np.int64],
        top_ps: NDArray[np.float64],
        min_ps: NDArray[np.float32],
        uniforms: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Return int64 [num_draws], a token of scores[rows[i]] for each i; see native/draw.h.

        Args:
            scores: [num_rows, vocab_size], contiguous; rows drawn from hold no NaN, and their largest is finite.
            rows, temperatures, top_ks, top_ps, min_ps, uniforms: [num_draws].

        Raises:
            ConfigError: the machine lacks the instruction set.
        """
        assert scores.flags.c_contiguous
        assert not len(rows) or 0 <= rows.min() <= rows.max() < len(scores), (rows, scores.shape)
        tokens = np.empty(len(rows), dtype=np.int64)
        message = ctypes.create_string_buffer(300)
        arrays = (rows, temperatures, top_ks, top_ps, min_ps, uniforms, tokens)
        if self.handle.pellucid_draw(
            instruction_set.encode(), scores.ctypes.data, scores.shape[1], len(rows),
            *(array.ctypes.data for array in arrays), message, len(message),
        ):  # fmt: skip
            raise ConfigError(f"the native draw: {message.value.decode(errors='replace')}")
        return tokens

    def instruction_set(self, name: str = "auto") -> str | None:
        """Return the instruction set that `name` would use on this machine; None when it lacks it."""
        found: bytes | None = self.handle.pellucid_instruction_set(name.encode())
        return found.decode() if found else None

    def instruction_sets(self) -> list[str]:
        """Return those of this machine, best first."""
        return [name for name in INSTRUCTION_SETS if self.instruction_set(name)]


class NativeDecoder:
    """One decoder in the library: weights, KV pool, scratch, threads. Not for two threads at once.

    Args:
        cosines, sines: float32 [max_positions, head_dim / 2].
        instruction_set: `auto` or one of INSTRUCTION_SETS.

    Raises:
        ConfigError: the machine lacks the instruction set, or memory or threads for the shape.
    """

    def __init__(
        self,
        library: NativeLibrary,
        shape: DecoderShape,
        *,
        cosines: NDArray[np.float32],
        sines: NDArray[np.float32],
        instruction_set: str = "auto",
    ) -> None:
        self._handle = library.handle
        self._message = ctypes.create_string_buffer(300)
        self._pointer = self._handle.pellucid_create(
            ctypes.byref(shape), cosines.ctypes.data, sines.ctypes.data, instruction_set.encode(), *self._told()
        )
        if not self._pointer:
            raise ConfigError(f"the native executor: {self._said()}")
        self.close = weakref.finalize(self, self._handle.pellucid_destroy, self._pointer)
        self._observer = _Observer()

    def set_weight(self, name: str, encoding: str, data: NDArray[np.generic], num_rows: int, num_columns: int) -> None:
        """Copy one canonical weight, row-major in `encoding`; raise ConfigError when it doesn't fit the shape."""
        failed = self._handle.pellucid_set_weight(
            self._pointer, name.encode(), encoding.encode(), data.ctypes.data, num_rows, num_columns, *self._told()
        )
        if failed:
            raise ConfigError(f"the native executor: {self._said()}")

    def observe_layers(self, observer: LayerObserver | None) -> None:
        """Call `observer(layer, residual [num_tokens, hidden_size])` after every layer; None ends it."""
        if observer is None:
            self._observer = _Observer()
            return

        def called(layer: int, residual: "ctypes._Pointer[ctypes.c_float]", num_tokens: int, hidden_size: int) -> None:
            observer(layer, np.ctypeslib.as_array(residual, (num_tokens, hidden_size)).copy())

        self._observer = _Observer(called)

    def forward(self, batch: ForwardBatch, logits: NDArray[np.float32]) -> None:
        """Run the step into logits [num_logits, vocab_size]; the batch's numbers are trusted."""
        assert self.close.alive, "the decoder was closed"
        wire = _Batch(
            num_tokens=batch.num_tokens, num_seqs=batch.num_seqs, max_blocks=batch.block_tables.shape[1],
            num_logits=len(batch.logits_rows), num_copies=len(batch.block_copies),
            token_ids=batch.token_ids.ctypes.data, positions=batch.positions.ctypes.data,
            slot_mapping=batch.slot_mapping.ctypes.data, query_start=batch.query_start.ctypes.data,
            block_tables=batch.block_tables.ctypes.data,
            logits_rows=batch.logits_rows.ctypes.data, block_copies=batch.block_copies.ctypes.data,
        )  # fmt: skip
        failed = self._handle.pellucid_forward(
            self._pointer, ctypes.byref(wire), logits.ctypes.data, self._observer, *self._told()
        )
        if failed:
            raise RuntimeError(f"the native executor: {self._said()}")

    def _told(self) -> tuple["ctypes.Array[ctypes.c_char]", int]:
        return self._message, len(self._message)

    def _said(self) -> str:
        return self._message.value.decode(errors="replace")
