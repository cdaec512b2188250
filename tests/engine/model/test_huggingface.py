"""Hugging Face directories that transformers wrote, and damaged ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.errors import ModelLoadError
from engine.model.huggingface import load_huggingface
from engine.model.load import load_model
from engine.model.spec import RopeScaling
from tests.support.transformers_model import NAMES

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}, {"id": 3, "content": "<|end|>"}],
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=LLAMA3)),
    "llama untied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, head_dim=16, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
}


def write_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER))


def save(model: PreTrainedModel, directory: Path, **options: Any) -> PreTrainedModel:
    model.save_pretrained(directory, **options)
    write_tokenizer(directory)
    return model


def edit(path: Path, **changes: Any) -> None:
    fields = json.loads(path.read_text())
    for key, value in changes.items():
        if value is ...:
            fields.pop(key, None)
        else:
            fields[key] = value
    path.write_text(json.dumps(fields))


def refusal(directory: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_huggingface(directory)
    assert caught.value.message.startswith(f"{directory}: ")
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix(f"{directory}: ")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untied llama, to be copied before it is damaged."""
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("written")
    save(MODELS["llama untied"](), directory)
    return directory


@pytest.fixture
def llama(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "llama"))


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_load_huggingface_gives_the_weights_that_transformers_saved(
    tmp_path: Path, kind: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    model = save(MODELS[kind]().to(dtype), tmp_path)
    spec, weights, _ = load_huggingface(tmp_path)
    state = model.state_dict()
    assert {name: weight.shape for name, weight in weights.items()} == spec.weight_shapes()
    for name, weight in weights.items():
        *front, last = name.split(".")
        theirs = f"model.layers.{front[1]}.{NAMES[front[2]]}" if front[0] == "layers" else NAMES[front[0]]
        np.testing.assert_array_equal(weight.to_float32(), state[f"{theirs}.{last}"].float().numpy())
        assert weight.encoding == {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[dtype]
    assert (spec.num_heads, spec.num_kv_heads, spec.norm_eps) == (4, 2, 1e-6)
    assert spec.head_dim == (16 if kind in ("mistral", "qwen3") else 8)
    assert (spec.qkv_bias, spec.qk_norm) == (kind == "qwen2", kind == "qwen3")
    assert spec.tie_word_embeddings == (kind in ("llama tied", "qwen2"))


def test_load_huggingface_of_shards_gives_the_same_weights_as_of_one_file(llama: Path, tmp_path: Path) -> None:
    sharded = tmp_path / "sharded"
    save(LlamaForCausalLM.from_pretrained(llama), sharded, max_shard_size="20KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    _, one, _ = load_huggingface(llama)
    _, many, _ = load_huggingface(sharded)
    for name in one:
        np.testing.assert_array_equal(one[name].to_float32(), many[name].to_float32())


def test_load_huggingface_reads_llama3_rope_of_new_and_old_files(tmp_path: Path) -> None:
    save(MODELS["llama tied"](), tmp_path)
    expected = RopeScaling(
        kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=128
    )
    spec, _, _ = load_huggingface(tmp_path)
    assert (spec.rope_scaling, spec.rope_theta) == (expected, 500000.0)
    old = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    edit(tmp_path / "config.json", rope_parameters=..., rope_scaling=old, rope_theta=10000.0)
    spec, _, _ = load_huggingface(tmp_path)
    assert (spec.rope_scaling, spec.rope_theta) == (expected, 10000.0)


def test_load_huggingface_reads_linear_rope_with_the_legacy_type_key(llama: Path) -> None:
    edit(llama / "config.json", rope_parameters=..., rope_scaling={"type": "linear", "factor": 2.0})
    assert load_huggingface(llama)[0].rope_scaling == RopeScaling(kind="linear", factor=2.0)


@pytest.mark.parametrize(
    ("architecture", "changes", "context"),
    [
        ("MistralForCausalLM", {"sliding_window": 64}, 64),
        ("MistralForCausalLM", {"sliding_window": None}, 256),
        ("MistralForCausalLM", {"sliding_window": 4096}, 256),
        ("LlamaForCausalLM", {"sliding_window": 64}, 256),
        ("LlamaForCausalLM", {"sliding_window": 64, "use_sliding_window": True}, 64),
    ],
)
def test_load_huggingface_with_a_sliding_window_in_use_shortens_the_context_to_it(
    llama: Path, architecture: str, changes: dict[str, Any], context: int
) -> None:
    edit(llama / "config.json", architectures=[architecture], **changes)
    assert load_huggingface(llama)[0].max_position_embeddings == context


WRONG_CONFIG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown family": ({"architectures": ["GPT2LMHeadModel"]}, "config.json: `architectures` is 'GPT2LMHeadModel'"),
    "no family": ({"architectures": ...}, "config.json: `architectures` is 'None', which can't be run"),
    "family as a number": ({"architectures": [5]}, "config.json: `architectures` is '5'"),
    "no hidden size": ({"hidden_size": ...}, "config.json: `hidden_size` is missing"),
    "layers as text": ({"num_hidden_layers": "2"}, "config.json: `num_hidden_layers` must be an integer, found '2'"),
    "layers as true": ({"num_hidden_layers": True}, "`num_hidden_layers` must be an integer, found True"),
    "a billion layers": ({"num_hidden_layers": 10**9}, "`num_hidden_layers` says 1000000000, but there are"),
    "three layers": ({"num_hidden_layers": 3}, "tensor `model.layers.2.input_layernorm.weight` is missing"),
    "one layer": ({"num_hidden_layers": 1}, "tensor `model.layers.1."),
    "heads that don't divide": ({"num_attention_heads": 5, "head_dim": None}, "(5) doesn't divide `hidden_size` (32)"),
    "negative context": ({"max_position_embeddings": -1}, "`max_position_embeddings` must lie in [1, "),
    "larger vocabulary": (
        {"vocab_size": 41},
        "tensor `model.embed_tokens.weight` must have shape [41, 32], found [40, 32]",
    ),
    "epsilon infinite": ({"rms_norm_eps": float("inf")}, "`rms_norm_eps` must be a finite number"),
    "another activation": ({"hidden_act": "gelu"}, "`hidden_act` must be silu, found 'gelu'"),
    "biases": ({"attention_bias": True}, "`attention_bias` is true, which isn't computed"),
    "quantised": ({"quantization_config": {"bits": 4}}, "`quantization_config` is present"),
    "yarn": ({"rope_parameters": {"rope_type": "yarn"}}, "config.json: rope_parameters: `rope_type` is 'yarn'"),
    "llama3 without numbers": (
        {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}},
        "config.json: rope_parameters: `low_freq_factor` is missing",
    ),
    "partial rotation": ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` must be 1"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG_CONFIG.values(), ids=WRONG_CONFIG.keys())
def test_load_huggingface_with_a_wrong_config_names_the_field(
    llama: Path, changes: dict[str, Any], message: str
) -> None:
    edit(llama / "config.json", **changes)
    assert message in refusal(llama)


HOSTILE_VALUES: list[Any] = [
    None, 0, -1, 2**31, 10**400, 1e308, float("nan"), float("-inf"), True, False, "", "x\n" * 500, [], [1], [None],
    [[]], {}, {"a": 1}, [{"name": []}], [{"name": "default", "template": 3}],
]  # fmt: skip


def test_load_huggingface_with_any_field_of_any_kind_is_read_or_refused_in_one_short_line(llama: Path) -> None:
    (llama / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": "x"}))
    messages = []
    for name in ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"):
        good = (llama / name).read_text()
        for key in [*json.loads(good), "bos_token", "add_bos_token", "sliding_window", "rope_scaling", "eos_token_id"]:
            for hostile in HOSTILE_VALUES:
                edit(llama / name, **{key: hostile})
                try:
                    load_huggingface(llama)
                except ModelLoadError as error:
                    messages.append(error.message)
                (llama / name).write_text(good)
    assert len(messages) > 300
    assert [message for message in messages if "\n" in message or len(message) > 600] == []


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", '{"a": }', "\xff"])
def test_load_huggingface_with_a_config_that_is_no_json_object_says_so(llama: Path, text: str) -> None:
    (llama / "config.json").write_bytes(text.encode("latin-1"))
    assert refusal(llama).startswith("config.json: ")


def head_as(llama: Path, *, flag: bool, head: str) -> None:
    """Set the tying flag and the head tensor (`absent`, `own` or `copy` of the embedding)."""
    edit(llama / "config.json", tie_word_embeddings=flag)
    tensors = load_file(llama / "model.safetensors")
    if head == "absent":
        del tensors["lm_head.weight"]
    elif head == "copy":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, llama / "model.safetensors")


@pytest.mark.parametrize(
    ("flag", "head", "has_head"),
    [(True, "absent", False), (True, "copy", False), (False, "own", True), (False, "copy", True)],
)
def test_load_huggingface_head_follows_the_flag_where_file_and_flag_agree(
    llama: Path, flag: bool, head: str, has_head: bool
) -> None:
    head_as(llama, flag=flag, head=head)
    spec, weights, _ = load_huggingface(llama)
    assert spec.tie_word_embeddings == flag
    assert ("head.weight" in weights) == has_head


def test_load_huggingface_head_absent_but_not_tied_is_refused(llama: Path) -> None:
    head_as(llama, flag=False, head="absent")
    assert refusal(llama) == "tensor `lm_head.weight` is missing, and config.json: `tie_word_embeddings` is false"


def test_load_huggingface_head_tied_but_different_is_refused(llama: Path) -> None:
    head_as(llama, flag=True, head="own")
    assert "`tie_word_embeddings` is true, but tensor `lm_head.weight` differs" in refusal(llama)


def test_load_huggingface_ignores_stored_rotary_frequencies_and_names_other_leftovers(llama: Path) -> None:
    tensors = load_file(llama / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, llama / "model.safetensors")
    load_huggingface(llama)
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.ones(32)
    save_file(tensors, llama / "model.safetensors")
    assert refusal(llama) == "tensor `model.layers.0.self_attn.q_proj.bias` has no place in a llama model"


def test_load_huggingface_with_a_tensor_name_of_two_lines_is_refused_in_one(llama: Path) -> None:
    tensors = load_file(llama / "model.safetensors")
    save_file({**tensors, "two\nlines": torch.ones(1)}, llama / "model.safetensors")
    assert refusal(llama).startswith("model.safetensors: tensor names must be printable")


def test_load_huggingface_with_a_tensor_of_another_dtype_names_tensor_and_dtype(llama: Path) -> None:
    tensors = load_file(llama / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].double()
    save_file(tensors, llama / "model.safetensors")
    assert refusal(llama) == "tensor `model.norm.weight` has dtype F64; known are F32, F16, BF16"


def test_load_huggingface_with_weights_cut_at_many_places_names_the_file(llama: Path) -> None:
    raw = (llama / "model.safetensors").read_bytes()
    for end in (0, 1, 7, 8, 9, 100, 1000, len(raw) // 2, len(raw) - 1):
        (llama / "model.safetensors").write_bytes(raw[:end])
        assert refusal(llama).startswith("model.safetensors: ")


def test_load_huggingface_with_a_huge_header_length_names_the_file(llama: Path) -> None:
    raw = (llama / "model.safetensors").read_bytes()
    (llama / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + raw[8:])
    assert refusal(llama).startswith("model.safetensors: ")


def test_load_huggingface_without_weights_or_tokenizer_names_the_missing_file(llama: Path) -> None:
    (llama / "tokenizer.json").unlink()
    assert refusal(llama).startswith("tokenizer.json is missing")
    write_tokenizer(llama)
    (llama / "model.safetensors").unlink()
    assert refusal(llama).startswith("has neither model.safetensors nor model.safetensors.index.json")
    (llama / "config.json").unlink()
    assert refusal(llama) == "config.json: can't be opened: No such file or directory"


@pytest.fixture
def sharded(llama: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "sharded"
    save(LlamaForCausalLM.from_pretrained(llama), directory, max_shard_size="20KB")
    return directory


def test_load_huggingface_with_a_missing_shard_names_it(sharded: Path) -> None:
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    assert refusal(sharded) == f"shard {shard.name} is missing (model.safetensors.index.json names it)"


def test_load_huggingface_with_an_index_that_disagrees_names_the_tensor(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    mapping = json.loads(index.read_text())["weight_map"]
    norm_shard = mapping["model.norm.weight"]
    edit(index, weight_map={name: shard for name, shard in mapping.items() if name != "model.norm.weight"})
    assert refusal(sharded).startswith(f"{norm_shard}: tensor `model.norm.weight` isn't listed")
    edit(index, weight_map={**mapping, "model.extra.weight": norm_shard})
    assert refusal(sharded).startswith(f"{norm_shard}: tensor 'model.extra.weight' is missing")
    edit(index, weight_map={**mapping, "model.norm.weight": "../../elsewhere.safetensors"})
    assert "isn't a plain file name" in refusal(sharded)
    edit(index, weight_map=...)
    assert "`weight_map` must be an object" in refusal(sharded)


def test_load_huggingface_tokenizer_collects_special_tokens_of_all_files(llama: Path) -> None:
    edit(llama / "config.json", bos_token_id=1, eos_token_id=2)
    (llama / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 2]}))
    (llama / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": {"content": "<s>", "lstrip": False},
                "eos_token": "</s>",
                "add_bos_token": False,
                "chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}],
            }
        )
    )
    _, _, tokenizer = load_huggingface(llama)
    assert tokenizer.tokenizer_json == llama / "tokenizer.json"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", None)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, (3, 2), False)
    assert tokenizer.chat_template == "D"
    (llama / "chat_template.jinja").write_text("J")
    assert load_huggingface(llama)[2].chat_template == "J"


def test_load_huggingface_tokenizer_without_ids_takes_those_of_the_token_texts(llama: Path) -> None:
    edit(llama / "config.json", bos_token_id=None, eos_token_id=None)
    (llama / "generation_config.json").unlink()
    (llama / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|end|>"}))
    _, _, tokenizer = load_huggingface(llama)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, (3,), None)


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("generation_config.json", {"eos_token_id": "2"}, "generation_config.json: `eos_token_id` must be a token id"),
        ("generation_config.json", {"eos_token_id": [-1]}, "`eos_token_id` must be a token id, found -1"),
        ("tokenizer_config.json", {"eos_token": 5}, "tokenizer_config.json: `eos_token` must be a string, found 5"),
        ("tokenizer_config.json", {"add_bos_token": 1}, "`add_bos_token` must be true or false, found 1"),
        ("tokenizer_config.json", {"chat_template": 1}, "`chat_template` must be a string"),
        ("tokenizer_config.json", {"chat_template": [{"name": "default", "template": 3}]}, "`chat_template` must be"),
        ("tokenizer_config.json", {"bos_token": 1, "chat_template": [{"name": []}, 5]}, "`bos_token` must be a string"),
        ("tokenizer.json", {"added_tokens": 5}, "tokenizer.json: `added_tokens` must be a list"),
        ("tokenizer.json", {"added_tokens": [{}]}, "tokenizer.json: each of `added_tokens` must be an object"),
    ],
)
def test_load_huggingface_tokenizer_with_a_wrong_field_names_it(
    llama: Path, file: str, fields: dict[str, Any], message: str
) -> None:
    (llama / file).write_text(json.dumps(fields))
    assert message in refusal(llama)


def test_load_model_of_a_directory_is_named_after_it(llama: Path) -> None:
    model = load_model(str(llama))
    assert (model.name, model.path) == ("llama", llama)
