"""The native CPU executor: one call into our own C++ runs a whole step, without the interpreter lock."""

import numpy as np
from numpy.typing import NDArray

from engine.config import KvDtypeName
from engine.errors import ConfigError
from engine.execution.forward_batch import ForwardBatch
from engine.kernels.native_library import KV_FORMATS, DecoderShape, LayerObserver, NativeDecoder, NativeLibrary
from engine.model.rope import inverse_frequencies
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights, WeightTensor
from engine.quantization.conversion import quantize_to_q8_0, round_to_bfloat16

INT8_BLOCK = 32
BLOCK_ENCODINGS = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
FLOAT_ENCODINGS = frozenset({"F32", "F16", "BF16"})
TILED_BLOCK_ENCODINGS = frozenset({"Q4_0", "Q4_1"})  # with `bfloat16`, in the bits of the file
IN_BFLOAT16 = ":bfloat16"  # the kernels' name for blocks that are multiplied so is the encoding's with this behind it
VOCABULARY = frozenset({"embed.weight", "head.weight"})


class NativeExecutor:
    """Run a decoder with our own kernels over weights in the file's precision.

    A row's result depends on neither the other rows, the chunking, the number of threads, the blocks nor the schedule:
    equal requests give equal bits. Between instruction sets results differ by rounding.

    Numerics: matrices in blocks (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K) keep every value, in about the bits of
    the file, and are multiplied in integers with activations quantised to 8 bits for each block of 32, blocks (of Q6_K:
    halves of blocks) summed in float32. F16 and BF16 matrices stay as they are and are multiplied in float32, which is
    exact. When `exact`, block matrices become float32 in memory. Norms, rotation, softmax: float32.

    With `bfloat16` (AMX) every matrix but the vocabulary's is multiplied in tiles of bfloat16, activations rounded to
    it and sums in float32: Q4_0 and Q4_1 in their four bits, weights being rounded as they are read; others in 16 bits.

    Keys and values are rounded to `kv_dtype` as they are stored, and every reader, the step that stores them included,
    sees them rounded. Attention computes in float32 on them, whatever their precision; but `amx` and `avx512_bf16`
    round queries and weights to bfloat16 as well on a bfloat16 cache, where heads are a multiple of 32 and blocks one
    of 16.

    Args:
        spec, weights: the model.
        library: the built kernels.
        num_blocks, block_size: the KV pool.
        max_tokens: most tokens of one step.
        max_positions: most tokens of one sequence.
        threads: compute threads, the calling one included.
        instruction_set: `auto`, `amx`, `avx512_bf16`, `avx512`, `avx2` or `portable`.
        exact: dequantise every weight to float32, the reference precision.
        int8_weights: make 8 bits of matrices that come in float, with a scale for every 32 inputs, which is finer than
            one for each output; a matrix whose rows are no multiple of 32 stays.
        bfloat16: multiply in tiles of bfloat16: nearer to exact arithmetic than integers and faster for prompts, slower
            for a few decodes at once.
        kv_dtype: of the KV cache. int8 has one scale for each token and KV head, of keys and of values. The pool takes
            memory as its blocks are first used.

    Raises:
        ConfigError: the machine can't run it: no such instruction set, memory or threads.
    """

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
        int8_weights: bool = False,
        bfloat16: bool = False,
        kv_dtype: KvDtypeName = "float32",
    ) -> None:
        if not 1 <= threads <= 256:
            raise ConfigError(f"`threads` of the native executor must lie in 1..256, got {threads}")
        self._spec = spec
        self._max_tokens = max_tokens
        self._max_positions = max_positions
        self._num_blocks = num_blocks
        self._block_size = block_size
        shape = DecoderShape(
            vocab_size=spec.vocab_size, hidden_size=spec.hidden_size, intermediate_size=spec.intermediate_size,
            num_layers=spec.num_layers, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim, max_positions=max_positions, qkv_bias=spec.qkv_bias, qk_norm=spec.qk_norm,
            tie_word_embeddings=spec.tie_word_embeddings, num_blocks=num_blocks, block_size=block_size,
            max_tokens=max_tokens, num_threads=threads, kv_format=KV_FORMATS[kv_dtype],
            norm_epsilon=spec.norm_eps,
        )  # fmt: skip
        angles = np.arange(max_positions, dtype=np.float64)[:, None] * inverse_frequencies(spec)
        self._decoder = NativeDecoder(
            library,
            shape,
            cosines=np.cos(angles).astype(np.float32),
            sines=np.sin(angles).astype(np.float32),
            instruction_set=instruction_set,
        )
        self.num_threads = threads
        self.instruction_set = library.instruction_set(instruction_set)
        if bfloat16 and self.instruction_set != "amx":
            raise ConfigError(f"`dtype` bfloat16 of the native executor needs AMX, this one has {self.instruction_set}")
        self._is_exact = exact
        self._packed: dict[str, int] = {}
        for name, tensor in weights.items():
            encoding, data = _for_kernels(name, tensor, exact=exact, int8_weights=int8_weights, bfloat16=bfloat16)
            self._set_weight(name, tensor, encoding, data)
        self._logits = np.empty((0, spec.vocab_size), dtype=np.float32)

    @property
    def name(self) -> str:
        return "native"

    @property
    def dtype_name(self) -> str:
        """The precision of most weights: `Q4_1`, `Q8_0`, `BF16`, `int8`, ...; `float32` when everything is exact."""
        if self._is_exact:
            return "float32"
        return max(self._packed, key=lambda encoding: self._packed[encoding])

    def observe_layers(self, observer: LayerObserver | None) -> None:
        """Call `observer(layer, residual [num_tokens, hidden_size])` after every layer of a step; None ends it."""
        self._decoder.observe_layers(observer)

    def execute(self, batch: ForwardBatch) -> NDArray[np.float32]:
        """Return float32 [num_logits, vocab_size], valid until the next call."""
        num_logits = len(batch.logits_rows)
        self._check(batch)
        if len(self._logits) < num_logits:
            self._logits = np.empty((num_logits, self._spec.vocab_size), dtype=np.float32)
        logits = self._logits[:num_logits]
        self._decoder.forward(batch, logits)
        return logits

    def close(self) -> None:
        """Free the weights, the KV pool and the threads; further calls are errors."""
        self._decoder.close()

    def _set_weight(self, name: str, tensor: WeightTensor, encoding: str, data: NDArray[np.generic]) -> None:
        rows, columns = tensor.shape if len(tensor.shape) == 2 else (1, tensor.shape[0])
        kernel_encoding = "Q8_0" if encoding == "int8" else encoding
        self._decoder.set_weight(name, kernel_encoding, data, rows, columns)
        kept = "float32" if encoding == "F32" else encoding
        self._packed[kept] = self._packed.get(kept, 0) + rows * columns

    def _check(self, batch: ForwardBatch) -> None:
        """Stop a wrong batch here: the kernels trust its numbers."""
        assert batch.num_tokens <= self._max_tokens, (batch.num_tokens, self._max_tokens)
        for array, dtype, limit in (
            (batch.token_ids, np.int64, self._spec.vocab_size),
            (batch.positions, np.int64, self._max_positions),
            (batch.slot_mapping, np.int64, self._num_blocks * self._block_size),
            (batch.logits_rows, np.int64, batch.num_tokens),
            (batch.block_copies, np.int64, self._num_blocks),
            (batch.block_tables, np.int32, self._num_blocks),
            (batch.query_start, np.int32, batch.num_tokens + 1),
        ):
            assert array.dtype == dtype, (array.dtype, dtype)
            assert array.flags.c_contiguous
            assert not array.size or (array.min() >= 0 and array.max() < limit), (array.min(), array.max(), limit)
        if batch.num_tokens:
            assert batch.positions.max() < batch.block_tables.shape[1] * self._block_size, "a block table is too short"


def _for_kernels(
    name: str, tensor: WeightTensor, *, exact: bool, int8_weights: bool, bfloat16: bool
) -> tuple[str, NDArray[np.generic]]:
    """Return the encoding in which the kernels take a weight, `int8` for one made here, and its contiguous data."""
    is_matrix = len(tensor.shape) == 2
    if exact or not is_matrix or tensor.encoding not in (*BLOCK_ENCODINGS, *FLOAT_ENCODINGS):
        return "F32", np.ascontiguousarray(tensor.to_float32())
    if int8_weights and tensor.encoding in FLOAT_ENCODINGS and tensor.shape[1] % INT8_BLOCK == 0:
        return "int8", quantize_to_q8_0(tensor.to_float32())
    if bfloat16 and name not in VOCABULARY:
        if tensor.encoding in TILED_BLOCK_ENCODINGS:
            return tensor.encoding + IN_BFLOAT16, np.ascontiguousarray(tensor.data)
        if tensor.encoding not in ("BF16", "F16"):
            return "BF16", round_to_bfloat16(tensor.to_float32())
    return tensor.encoding, np.ascontiguousarray(tensor.data)
