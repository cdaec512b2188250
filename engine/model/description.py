"""What a loaded model is, in numbers: for `pellucid models info` and the service's own pages."""

from collections import Counter
from dataclasses import dataclass
from math import prod

from engine.model.load import LoadedModel
from engine.model.spec import DecoderSpec
from engine.model.tokenizer_source import ByteTokenizerSource, GgufTokenizerSource, HuggingFaceTokenizerSource

_BYTES_OF_DTYPE = {"float32": 4, "bfloat16": 2}
_BYTES_OF_KV_DTYPE = {**_BYTES_OF_DTYPE, "float16": 2}


@dataclass(frozen=True, slots=True)
class EncodingShare:
    """How much of a model one encoding holds.

    Attributes:
        num_bytes: as stored.
    """

    encoding: str
    num_tensors: int
    num_parameters: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The facts of a model.

    Attributes:
        encodings: largest share first.
        weight_bytes: memory of the weights, `stored` as in the file and dequantised to each dtype.
        kv_bytes_per_token: K and V of one token in all layers, by dtype of the cache.
        tokenizer_kind: `gguf gpt2`, `gguf llama`, `tokenizer.json` or `bytes`.
    """

    name: str
    path: str | None
    spec: DecoderSpec
    num_parameters: int
    encodings: tuple[EncodingShare, ...]
    weight_bytes: dict[str, int]
    kv_bytes_per_token: dict[str, int]
    tokenizer_kind: str
    chat_template: str | None


def describe(model: LoadedModel) -> ModelDescription:
    """Sum a model up. Touches no weight data."""
    num_tensors: Counter[str] = Counter()
    num_parameters: Counter[str] = Counter()
    num_bytes: Counter[str] = Counter()
    for tensor in model.weights.values():
        num_tensors[tensor.encoding] += 1
        num_parameters[tensor.encoding] += prod(tensor.shape)
        num_bytes[tensor.encoding] += tensor.num_bytes
    shares = tuple(
        EncodingShare(encoding, num_tensors[encoding], num_parameters[encoding], size)
        for encoding, size in num_bytes.most_common()
    )
    total = num_parameters.total()
    spec, source = model.spec, model.tokenizer
    kv_numbers = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim
    return ModelDescription(
        name=model.name,
        path=None if model.path is None else str(model.path),
        spec=spec,
        num_parameters=total,
        encodings=shares,
        weight_bytes={"stored": num_bytes.total()} | {dtype: total * size for dtype, size in _BYTES_OF_DTYPE.items()},
        kv_bytes_per_token={dtype: kv_numbers * size for dtype, size in _BYTES_OF_KV_DTYPE.items()},
        tokenizer_kind=_kind(source),
        chat_template=source.chat_template,
    )


def _kind(source: GgufTokenizerSource | HuggingFaceTokenizerSource | ByteTokenizerSource) -> str:
    match source:
        case GgufTokenizerSource():
            return f"gguf {source.model}"
        case HuggingFaceTokenizerSource():
            return "tokenizer.json"
        case ByteTokenizerSource():
            return "bytes"
