"""From GGUF names and metadata to a spec, canonical weights and a tokenizer source."""

import random
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelLoadError
from engine.model.gguf import load_gguf
from engine.model.spec import DecoderSpec, RopeScaling
from engine.model.tokenizer_source import GgufTokenizerSource
from engine.model.weights import Weights
from tests.support import gguf_bytes as gb


def load(model: gb.TinyLlama, directory: Path) -> tuple[DecoderSpec, Weights, GgufTokenizerSource]:
    path = directory / "tiny.gguf"
    path.write_bytes(model.encode())
    return load_gguf(path)


def refusal(model: gb.TinyLlama, directory: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(model, directory)
    prefix = f"{directory / 'tiny.gguf'}: "
    assert caught.value.message.startswith(prefix)
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix(prefix)


def test_load_gguf_of_a_tiny_llama_gives_spec_and_exactly_the_canonical_weights(tmp_path: Path) -> None:
    spec, weights, tokenizer = load(gb.tiny_llama(), tmp_path)
    assert spec == DecoderSpec(
        architecture="llama",
        vocab_size=12,
        hidden_size=8,
        intermediate_size=6,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        max_position_embeddings=64,
        norm_eps=float(np.float32(1e-5)),
        tie_word_embeddings=True,
    )
    assert {name: weight.shape for name, weight in weights.items()} == spec.weight_shapes()
    assert tokenizer == GgufTokenizerSource(
        model="gpt2",
        pre="smollm",
        tokens=tuple(gb.TOKENS),
        scores=None,
        token_types=(3, 3, 3, *[1] * 9),
        merges=("a b", "ab c"),
        bos_id=1,
        eos_id=2,
        add_bos=True,
        chat_template="{{ messages }}",
    )


def test_load_gguf_weights_keep_the_stored_values(tmp_path: Path) -> None:
    model = gb.tiny_llama()
    _, weights, _ = load(model, tmp_path)
    stored = np.frombuffer(model.tensors["blk.0.ffn_down.weight"].raw, "<f4").reshape(8, 6)
    np.testing.assert_array_equal(weights["layers.0.down.weight"].to_float32(), stored)
    assert weights["layers.0.down.weight"].data.shape == (8, 24)
    assert weights["final_norm.weight"].data.shape == (1, 32)


def test_load_gguf_of_llama_puts_q_and_k_rows_in_half_split_order(tmp_path: Path) -> None:
    # Rows of a head of 4 are stored as pairs (x0 y0 x1 y1) and are wanted as halves (x0 x1 y0 y1).
    q = np.repeat(np.arange(8.0)[:, None], 8, axis=1)
    k = np.repeat(np.arange(4.0)[:, None], 8, axis=1)
    v = np.repeat(np.arange(4.0)[:, None], 8, axis=1)
    model = gb.tiny_llama()
    for name, rows in (("q", q), ("k", k), ("v", v)):
        model = model.with_tensor(f"blk.0.attn_{name}.weight", gb.floats(rows))
    _, weights, _ = load(model, tmp_path)
    assert weights["layers.0.q.weight"].to_float32()[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert weights["layers.0.k.weight"].to_float32()[:, 0].tolist() == [0, 2, 1, 3]
    assert weights["layers.0.v.weight"].to_float32()[:, 0].tolist() == [0, 1, 2, 3]


def test_load_gguf_of_llama_with_biases_reorders_them_like_their_rows(tmp_path: Path) -> None:
    model = gb.tiny_llama()
    for name, size in (("q", 8), ("k", 4), ("v", 4)):
        model = model.with_tensor(f"blk.0.attn_{name}.bias", gb.floats(np.arange(float(size))))
    spec, weights, _ = load(model, tmp_path)
    assert spec.qkv_bias
    assert weights["layers.0.q.bias"].to_float32().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert weights["layers.0.v.bias"].to_float32().tolist() == [0, 1, 2, 3]
    assert weights["layers.0.k.bias"].data.shape == (1, 16)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_load_gguf_of_qwen_keeps_rows_and_asks_for_its_own_tensors(tmp_path: Path, architecture: str) -> None:
    model = gb.tiny_llama(architecture)
    spec, weights, _ = load(model, tmp_path)
    stored = np.frombuffer(model.tensors["blk.0.attn_q.weight"].raw, "<f4").reshape(8, 8)
    np.testing.assert_array_equal(weights["layers.0.q.weight"].to_float32(), stored)
    assert (spec.qkv_bias, spec.qk_norm) == (architecture == "qwen2", architecture == "qwen3")
    own = "blk.0.attn_q.bias" if architecture == "qwen2" else "blk.0.attn_k_norm.weight"
    assert refusal(model.without_tensor(own), tmp_path) == f"tensor `{own}` is missing"


def test_load_gguf_without_output_weight_ties_the_head(tmp_path: Path) -> None:
    spec, weights, _ = load(gb.tiny_llama(), tmp_path)
    assert spec.tie_word_embeddings
    assert "head.weight" not in weights


def test_load_gguf_with_output_weight_uses_it_as_the_head(tmp_path: Path) -> None:
    head = np.arange(96.0).reshape(12, 8)
    spec, weights, _ = load(gb.tiny_llama().with_tensor("output.weight", gb.floats(head)), tmp_path)
    assert not spec.tie_word_embeddings
    np.testing.assert_array_equal(weights["head.weight"].to_float32(), head)


def test_load_gguf_with_a_tensor_left_over_names_it(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_tensor("blk.0.attn_output.bias", gb.floats(np.zeros(8)))
    assert refusal(model, tmp_path) == "tensor `blk.0.attn_output.bias` has no place in a llama model"


@pytest.mark.parametrize("name", list(gb.tiny_llama().tensors))
def test_load_gguf_without_any_one_tensor_names_it(tmp_path: Path, name: str) -> None:
    assert refusal(gb.tiny_llama().without_tensor(name), tmp_path) == f"tensor `{name}` is missing"


@pytest.mark.parametrize(
    "key",
    [
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
    ],
)
def test_load_gguf_without_a_required_key_names_it(tmp_path: Path, key: str) -> None:
    assert refusal(gb.tiny_llama().without_pair(key), tmp_path) == f"`{key}` is missing from the metadata"


WRONG_METADATA = {
    "unknown family": (
        "general.architecture",
        gb.STRING,
        "falcon",
        "`general.architecture` is 'falcon', which can't be run; known are llama, qwen2, qwen3",
    ),
    "layers beyond the tensors": ("llama.block_count", gb.U32, 0xFFFFFFFF, "`llama.block_count` must lie in"),
    "more layers than tensors": ("llama.block_count", gb.U32, 12, "`llama.block_count` says 12 layers"),
    "one layer too many": ("llama.block_count", gb.U32, 2, "tensor `blk.1.attn_norm.weight` is missing"),
    "no layer": ("llama.block_count", gb.U32, 0, "`llama.block_count` must lie in"),
    "layers as text": ("llama.block_count", gb.STRING, "1", "`llama.block_count` must be an integer, found '1'"),
    "zero heads": ("llama.attention.head_count", gb.U32, 0, "`llama.attention.head_count` must lie in"),
    "heads that don't divide": ("llama.attention.head_count", gb.U32, 3, "(3) doesn't divide"),
    "KV heads that don't divide": ("llama.attention.head_count_kv", gb.U32, 3, "must be a multiple of `num_kv_heads`"),
    "partial rotation": ("llama.rope.dimension_count", gb.U32, 2, "must equal the head size (4), found 2"),
    "wider rows": ("llama.embedding_length", gb.U32, 16, "`llama.rope.dimension_count` must equal the head size (8)"),
    "wider middle": (
        "llama.feed_forward_length",
        gb.U32,
        7,
        "tensor `blk.0.ffn_gate.weight` must have shape [7, 8], found [6, 8]",
    ),
    "value heads of another size": ("llama.attention.value_length", gb.U32, 8, "must equal the head size (4), found 8"),
    "epsilon NaN": ("llama.attention.layer_norm_rms_epsilon", gb.F32, float("nan"), "must be finite, found nan"),
    "epsilon negative": ("llama.attention.layer_norm_rms_epsilon", gb.F32, -1.0, "`norm_eps` must be a positive"),
    "frequency base zero": ("llama.rope.freq_base", gb.F32, 0.0, "`rope_theta` must be a positive number, found 0.0"),
    "yarn": ("llama.rope.scaling.type", gb.STRING, "yarn", "`llama.rope.scaling.type` is 'yarn', which isn't computed"),
    "experts": ("llama.expert_count", gb.U32, 8, "`llama.expert_count` says a mixture of experts"),
    "an encoder": ("llama.attention.causal", gb.BOOL, 0, "`llama.attention.causal` is false"),
    "a part of a split model": ("split.count", gb.U16, 3, "`split.count` says this is one of 3 files"),
    "scaled logits": ("llama.logit_scale", gb.F32, 2.0, "`llama.logit_scale` changes the computation"),
    "unknown tokenizer": (
        "tokenizer.ggml.model",
        gb.STRING,
        "bert",
        "`tokenizer.ggml.model` is 'bert', which can't be built; known are gpt2, llama",
    ),
    "BOS outside": ("tokenizer.ggml.bos_token_id", gb.U32, 12, "`tokenizer.ggml.bos_token_id` must lie in [0, 11]"),
    "EOS of -1": ("tokenizer.ggml.eos_token_id", gb.I32, -1, "`tokenizer.ggml.eos_token_id` must lie in [0, 11]"),
    "flag as number": ("tokenizer.ggml.add_bos_token", gb.U32, 1, "`tokenizer.ggml.add_bos_token` must be a boolean"),
}


@pytest.mark.parametrize(("key", "kind", "content", "message"), WRONG_METADATA.values(), ids=WRONG_METADATA.keys())
def test_load_gguf_with_a_wrong_value_names_the_key(
    tmp_path: Path, key: str, kind: int, content: object, message: str
) -> None:
    assert message in refusal(gb.tiny_llama().with_pair(key, kind, content), tmp_path)


def test_load_gguf_with_fewer_tokens_than_embedding_rows_names_both(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_array("tokenizer.ggml.tokens", gb.STRING, gb.TOKENS[:-1])
    assert "`tokenizer.ggml.token_type` has 12 entries, but `tokenizer.ggml.tokens` has 11" in refusal(model, tmp_path)
    assert "has 11 entries, but tensor `token_embd.weight` has 12 rows" in refusal(
        model.without_pair("tokenizer.ggml.token_type"), tmp_path
    )


def test_load_gguf_with_scores_keeps_them_and_with_wrong_ones_refuses(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_pair("tokenizer.ggml.model", gb.STRING, "llama")
    good = model.with_array("tokenizer.ggml.scores", gb.F32, [-float(i) for i in range(12)])
    assert load(good.without_pair("tokenizer.ggml.merges"), tmp_path)[2].scores == tuple(-float(i) for i in range(12))
    short = model.with_array("tokenizer.ggml.scores", gb.F32, [0.0])
    assert "`tokenizer.ggml.scores` has 1 entries" in refusal(short, tmp_path)
    nan = model.with_array("tokenizer.ggml.scores", gb.F32, [float("nan")] * 12)
    assert refusal(nan, tmp_path) == "`tokenizer.ggml.scores` has NaN"


def test_load_gguf_with_a_pad_id_for_none_has_no_pad_id(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_pair("tokenizer.ggml.padding_token_id", gb.U32, 0xFFFFFFFF)
    assert load(model, tmp_path)[2].pad_id is None
    assert load(model.with_pair("tokenizer.ggml.padding_token_id", gb.U32, 2), tmp_path)[2].pad_id == 2


def test_load_gguf_with_several_ends_lists_them_once(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_pair("tokenizer.ggml.eot_token_id", gb.U32, 5)
    model = model.with_pair("tokenizer.ggml.eom_token_id", gb.U32, 2)
    assert load(model, tmp_path)[2].eos_ids == (2, 5)


@pytest.mark.parametrize("key", ["llama.rope.scaling.factor", "llama.rope.scale_linear"])
def test_load_gguf_with_a_linear_factor_scales_the_rotation(tmp_path: Path, key: str) -> None:
    model = gb.tiny_llama().with_pair(key, gb.F32, 4.0)
    assert load(model, tmp_path)[0].rope_scaling == RopeScaling(kind="linear", factor=4.0)
    off = model.with_pair("llama.rope.scaling.type", gb.STRING, "none")
    assert load(off, tmp_path)[0].rope_scaling is None


def test_load_gguf_with_rope_factors_keeps_one_per_frequency(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_tensor("rope_freqs.weight", gb.floats(np.array([1.0, 8.0])))
    assert load(model, tmp_path)[0].rope_scaling == RopeScaling(kind="per_frequency", factors=(1.0, 8.0))
    ones = gb.tiny_llama().with_tensor("rope_freqs.weight", gb.floats(np.ones(2)))
    assert load(ones, tmp_path)[0].rope_scaling is None
    long = gb.tiny_llama().with_tensor("rope_freqs.weight", gb.floats(np.arange(1.0, 5.0)))
    assert "rope scaling must have 2 factors, found 4" in refusal(long, tmp_path)
    zero = gb.tiny_llama().with_tensor("rope_freqs.weight", gb.floats(np.array([1.0, 0.0])))
    assert "factors must be positive" in refusal(zero, tmp_path)


def test_load_gguf_with_a_sliding_window_shortens_the_context_to_it(tmp_path: Path) -> None:
    model = gb.tiny_llama().with_pair("llama.attention.sliding_window", gb.U32, 16)
    assert load(model, tmp_path)[0].max_position_embeddings == 16


def test_load_gguf_with_a_quantised_norm_names_tensor_and_type(tmp_path: Path) -> None:
    wide = gb.tiny_llama("qwen3")
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        wide = wide.with_pair(f"qwen3.{key}", gb.U32, 32)
    for name, shape in {"q": (64, 8), "k": (32, 8), "v": (32, 8), "output": (8, 64)}.items():
        wide = wide.with_tensor(f"blk.0.attn_{name}.weight", gb.floats(np.zeros(shape)))
    wide = wide.with_tensor("blk.0.attn_q_norm.weight", gb.Tensor((32,), bytes(34), gb.TYPE_Q8_0))
    assert refusal(wide, tmp_path) == "tensor `blk.0.attn_q_norm.weight` is a vector and can't have type Q8_0"


def test_load_gguf_of_a_missing_empty_or_cut_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"none\.gguf: can't be opened: No such file"):
        load_gguf(tmp_path / "none.gguf")
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf: the file is empty"):
        load_gguf(path)
    raw = gb.tiny_llama().encode()
    path.write_bytes(raw[: len(raw) // 2 + len(raw) // 4])
    with pytest.raises(ModelLoadError, match="the file is cut or damaged"):
        load_gguf(path)


def test_load_gguf_of_a_file_with_bytes_changed_is_read_or_refused_in_one_short_line(tmp_path: Path) -> None:
    raw = gb.tiny_llama("qwen3").encode()
    end = raw.index(b"blk.0.ffn_down.weight") + 60
    draw = random.Random(11)
    path = tmp_path / "changed.gguf"
    messages = []
    for _ in range(800):
        changed = bytearray(raw)
        at = draw.randrange(end)
        if draw.random() < 0.3:
            changed[at : at + 8] = draw.choice((0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1)).to_bytes(8, "little")
        else:
            changed[at] = draw.randrange(256)
        path.write_bytes(changed)
        try:
            _, weights, _ = load_gguf(path)
            assert all(weight.to_float32().shape == weight.shape for weight in weights.values())
        except ModelLoadError as error:
            messages.append(error.message)
    assert len(messages) > 300
    assert [message for message in messages if "\n" in message or len(message) > 600] == []


@pytest.mark.parametrize("encoding", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_load_gguf_of_the_gguf_packages_own_writer_gives_its_values_in_canonical_order(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "written.gguf"
    kind = gguf.GGMLQuantizationType[encoding]
    canonical = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    # What llama.cpp's converter does to Q: [head, half, pair] becomes [head, pair, half].
    interleaved = canonical.reshape(2, 2, 16, 64).swapaxes(1, 2).reshape(64, 64)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(500000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([chr(97 + i) for i in range(4)])
    for name, shape in {
        "token_embd": (4, 64),
        "output_norm": (64,),
        "blk.0.attn_norm": (64,),
        "blk.0.ffn_norm": (64,),
        "blk.0.attn_q": (64, 64),
        "blk.0.attn_k": (64, 64),
        "blk.0.attn_v": (64, 64),
        "blk.0.attn_output": (64, 64),
        "blk.0.ffn_gate": (32, 64),
        "blk.0.ffn_up": (32, 64),
        "blk.0.ffn_down": (64, 32),
    }.items():
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
        else:
            values = interleaved if name == "blk.0.attn_q" else np.zeros(shape, np.float32)
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    spec, weights, _ = load_gguf(path)

    assert (spec.rope_theta, spec.num_kv_heads, spec.head_dim) == (500000.0, 2, 32)
    q = weights["layers.0.q.weight"]
    assert q.encoding == encoding
    stored = gguf.quants.quantize(canonical, kind)
    np.testing.assert_array_equal(q.data.reshape(-1), stored.view(np.uint8).reshape(-1))
    expected = gguf.quants.dequantize(stored, kind)
    np.testing.assert_array_equal(q.to_float32(), expected)
