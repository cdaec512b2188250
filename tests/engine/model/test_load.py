"""What a user calls a model, and what it turns into."""

import subprocess
import sys
from pathlib import Path

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from engine.errors import ModelLoadError
from engine.model.catalog import CATALOG, DEFAULT_MODEL
from engine.model.load import load_model
from engine.model.pull import cached_path
from engine.model.tokenizer_source import GgufTokenizerSource
from tests.support import gguf_bytes as gb


def test_load_model_of_a_gguf_file_is_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "my-model.gguf"
    path.write_bytes(gb.tiny_llama().encode())
    model = load_model(str(path))
    assert (model.name, model.path, model.spec.architecture) == ("my-model", path, "llama")


def test_load_model_of_a_home_path_expands_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(gb.tiny_llama().encode())
    assert load_model("~/m.gguf").path == tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "`model` '' is no file"),
        ("nonsense", r"is no file, no directory, no hub id and no known name \(smollm2-135m-instruct\)"),
        ("missing.gguf", r"missing\.gguf: no such file"),
        ("some/where/missing.gguf", "no such file"),
        ("a\0b", "`model` 'a.x00b' is no file"),
        ("x" * 5000, "`model` 'xxx"),
        ("line\nend", "`model` 'line.nend' is no file"),
    ],
)
def test_load_model_of_an_unknown_name_is_refused_in_one_short_line(name: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(name)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500


def test_load_model_of_a_file_of_another_kind_names_the_magic(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the sort")
    with pytest.raises(ModelLoadError, match=r"notes\.txt: `magic` must be b'GGUF', found b'noth'"):
        load_model(str(path))


@pytest.mark.parametrize("fault", [LocalEntryNotFoundError("no\nnetwork"), httpx.ConnectError("refused"), OSError("x")])
def test_load_model_of_a_hub_id_without_a_network_is_one_clear_line(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(hub_id: str, *, allow_patterns: list[str]) -> str:
        raise fault

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelLoadError, match="`model` 'owner/model' can't be fetched from the hub: ") as caught:
        load_model("owner/model")
    assert "\n" not in caught.value.message


def test_load_model_of_a_hub_id_opens_what_the_hub_client_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda hub_id, *, allow_patterns: str(tmp_path))
    with pytest.raises(ModelLoadError, match=r"config\.json: can't be opened"):
        load_model("owner/model")


def test_engine_model_is_imported_without_torch() -> None:
    code = "import sys, engine.model.load; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.model
def test_load_model_of_the_default_model_has_its_known_facts() -> None:
    path = cached_path(CATALOG[DEFAULT_MODEL])
    if not path.exists():
        pytest.skip(f"{DEFAULT_MODEL} isn't in the cache")
    model = load_model(str(path))
    spec, tokenizer = model.spec, model.tokenizer
    assert isinstance(tokenizer, GgufTokenizerSource)
    assert (spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (30, 576, 9, 3, 64)
    assert (spec.vocab_size, spec.max_position_embeddings, spec.rope_theta) == (49152, 8192, 100000.0)
    assert spec.tie_word_embeddings
    assert model.weights.num_parameters == 134_515_008
    assert model.weights["embed.weight"].encoding == "Q8_0"
    assert model.weights["layers.29.down.weight"].encoding == "Q4_1"
    assert (tokenizer.pre, len(tokenizer.merges), tokenizer.eos_ids, tokenizer.add_bos) == (
        "smollm",
        48900,
        (2,),
        False,
    )
