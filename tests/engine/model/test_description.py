"""The numbers of a model, for people who decide whether it fits."""

from pathlib import Path

import numpy as np

from engine.model.description import EncodingShare, describe
from engine.model.load import load_model
from tests.support import gguf_bytes as gb


def test_describe_sums_parameters_bytes_and_kv_by_hand_checked_numbers(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    half = gb.Tensor((12, 8), np.zeros((12, 8), "<f2").tobytes(), gb.TYPE_F16)
    path.write_bytes(gb.tiny_llama().with_tensor("token_embd.weight", half).encode())
    description = describe(load_model(str(path)))
    # q 64 + k 32 + v 32 + o 64 + gate, up, down 3 x 48 + three norms of 8
    num_float32 = 64 + 32 + 32 + 64 + 144 + 24
    assert description.encodings == (
        EncodingShare("F32", 10, num_float32, num_float32 * 4),
        EncodingShare("F16", 1, 96, 192),
    )
    assert description.num_parameters == num_float32 + 96
    assert description.weight_bytes == {
        "stored": num_float32 * 4 + 192,
        "float32": (num_float32 + 96) * 4,
        "bfloat16": (num_float32 + 96) * 2,
    }
    assert description.kv_bytes_per_token == {
        "float32": 2 * 1 * 4 * 4,
        "bfloat16": 2 * 1 * 4 * 2,
        "float16": 2 * 1 * 4 * 2,
    }
    assert (description.name, description.path) == ("tiny", str(path))
    assert (description.tokenizer_kind, description.chat_template) == ("gguf gpt2", "{{ messages }}")


def test_describe_of_a_random_model_has_no_path_and_a_byte_tokenizer() -> None:
    description = describe(load_model("random:tiny"))
    assert (description.path, description.tokenizer_kind) == (None, "bytes")
    assert description.spec.kv_bytes_per_token_fp32 == description.kv_bytes_per_token["float32"]
