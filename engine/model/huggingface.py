"""Hugging Face directories: (spec, weights, tokenizer source) out of config.json, safetensors and tokenizer.json."""

from pathlib import Path
from typing import Final

import numpy as np

from engine.errors import ModelLoadError
from engine.model.file_tensor import FileTensor
from engine.model.hf_spec import read_spec
from engine.model.hf_tokenizer import read_tokenizer
from engine.model.json_file import JsonFile
from engine.model.safetensors import SUPPORTED_DTYPES, StoredTensor, open_safetensors
from engine.model.spec import DecoderSpec
from engine.model.tokenizer_source import HuggingFaceTokenizerSource
from engine.model.weights import Weights

_EMBEDDING: Final = "model.embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
_TOP_LEVEL: Final = {"embed.weight": _EMBEDDING, "final_norm.weight": "model.norm.weight", "head.weight": _HEAD}
_IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
# Old checkpoints store the rotary frequencies, which follow from config.json.
_DERIVED_SUFFIX: Final = ".rotary_emb.inv_freq"


def load_huggingface(directory: Path) -> tuple[DecoderSpec, Weights, HuggingFaceTokenizerSource]:
    """Open a model directory of a known family. The tensors stay in the files, mapped read-only.

    Raises:
        ModelLoadError: a file is missing or damaged, the family is unknown, or tensors are missing, in the wrong shape,
            of another type than F32, F16 and BF16, or left over; begins with the path and names file and field.
    """
    try:
        config = JsonFile.read(directory / "config.json")
        spec = read_spec(config)
        tokenizer = read_tokenizer(directory, config)
        return spec, _weights(open_safetensors(directory), spec), tokenizer
    except ModelLoadError as error:
        raise ModelLoadError(f"{directory}: {error.message}") from None


def _weights(stored: dict[str, StoredTensor], spec: DecoderSpec) -> Weights:
    if spec.num_layers > len(stored):
        raise ModelLoadError(
            f"config.json: `num_hidden_layers` says {spec.num_layers}, but there are {len(stored)} tensors in all"
        )
    left = {name: tensor for name, tensor in stored.items() if not name.endswith(_DERIVED_SUFFIX)}
    tensors: dict[str, FileTensor] = {}
    for name, shape in spec.weight_shapes().items():
        stored_name = _stored_name(name)
        tensor = left.pop(stored_name, None)
        if tensor is None:
            raise ModelLoadError(_missing(stored_name))
        if tensor.dtype not in SUPPORTED_DTYPES:
            raise ModelLoadError(
                f"tensor `{stored_name}` has dtype {tensor.dtype}; known are {', '.join(SUPPORTED_DTYPES)}"
            )
        if tensor.shape != shape:
            raise ModelLoadError(f"tensor `{stored_name}` must have shape {list(shape)}, found {list(tensor.shape)}")
        rows = tensor.data.reshape(shape[0] if len(shape) > 1 else 1, -1)
        tensors[name] = FileTensor(name, shape, tensor.dtype, rows)
    if spec.tie_word_embeddings and (head := left.pop(_HEAD, None)) is not None:
        _check_head_is_the_embedding(head, stored[_EMBEDDING])
    if left:
        raise ModelLoadError(f"tensor `{next(iter(left))}` has no place in a {spec.architecture} model")
    return Weights(tensors)


def _stored_name(name: str) -> str:
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_IN_LAYER[part]}.{kind}"


def _missing(stored_name: str) -> str:
    if stored_name == _HEAD:
        return f"tensor `{_HEAD}` is missing, and config.json: `tie_word_embeddings` is false"
    return f"tensor `{stored_name}` is missing"


def _check_head_is_the_embedding(head: StoredTensor, embedding: StoredTensor) -> None:
    if (head.shape, head.dtype) != (embedding.shape, embedding.dtype) or not np.array_equal(head.data, embedding.data):
        raise ModelLoadError(
            f"config.json: `tie_word_embeddings` is true, but tensor `{_HEAD}` differs from `{_EMBEDDING}`"
        )
