"""`pellucid models`: what it prints and with which exit code."""

import argparse
import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.model.catalog import CATALOG, DEFAULT_MODEL, CatalogModel
from engine.model.pull import cached_path, pull
from service.commands import models
from tests.support import gguf_bytes as gb

CONTENT = gb.tiny_llama().encode()
TINY = CatalogModel(
    name="tiny",
    description="a tiny model",
    license="MIT",
    requirement="tiny-wheel==1.0",
    member="tiny_wheel/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    num_bytes=len(CONTENT),
)


@pytest.fixture(autouse=True)
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, with one more model in the catalogue."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(CATALOG, "tiny", TINY)


def cached() -> Path:
    path = cached_path(TINY)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return path


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    models.register(parser.add_subparsers(required=True))
    args = parser.parse_args(["models", *arguments])
    code: int = args.run(args)
    return code


Output = pytest.CaptureFixture[str]


def test_models_list_json_names_the_default_and_what_is_here(capsys: Output) -> None:
    path = cached()
    assert call("list", "--json") == 0
    out, err = capsys.readouterr()
    default, tiny = json.loads(out)["models"]
    assert (default["name"], default["default"], default["license"]) == (DEFAULT_MODEL, True, "Apache-2.0")
    assert default["state"] == "absent"
    assert (tiny["name"], tiny["state"], tiny["path"], tiny["num_bytes"]) == ("tiny", "here", str(path), len(CONTENT))
    assert err == ""
    path.write_bytes(CONTENT[:-1])
    call("list", "--json")
    assert json.loads(capsys.readouterr().out)["models"][1]["state"] == "damaged"


def test_models_list_prints_names_and_licenses(capsys: Output) -> None:
    assert call("list") == 0
    out = capsys.readouterr().out
    assert DEFAULT_MODEL in out
    assert "Apache-2.0" in out


def test_models_pull_of_a_cached_model_says_where_it_is_and_its_license(capsys: Output) -> None:
    path = cached()
    assert call("pull", "tiny") == 0
    assert f"tiny (license MIT): {path}" in capsys.readouterr().out
    assert call("pull", "tiny", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"name": "tiny", "path": str(path), "license": "MIT", "sha256": TINY.sha256}
    assert err == ""


def test_models_pull_of_an_unknown_name_fails_with_2_and_one_line(capsys: Output) -> None:
    assert call("pull", "nonsense", "--json") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: `model` 'nonsense' is no hub id and no known name ({', '.join(CATALOG)})\n"


def test_models_info_of_a_file_json_has_architecture_quantisation_tokenizer_and_memory(
    tmp_path: Path, capsys: Output
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    assert call("info", str(path), "--json") == 0
    out, err = capsys.readouterr()
    info = json.loads(out)
    assert (info["name"], info["path"], info["spec"]["architecture"]) == ("m", str(path), "llama")
    assert info["encodings"][0]["encoding"] == "F32"
    assert info["weight_bytes"]["stored"] == info["num_parameters"] * 4
    assert info["kv_bytes_per_token"] == {"float32": 32, "bfloat16": 16, "float16": 16}
    assert info["chat_template"] == "{{ messages }}"
    assert (info["tokenizer"]["vocab_size"], info["tokenizer"]["bos_id"], info["tokenizer"]["adds_bos"]) == (
        12,
        1,
        True,
    )
    assert 2 in info["tokenizer"]["eos_ids"]
    assert err == ""


@pytest.mark.parametrize("name", ["tiny", "random:tiny-qwen3"])
def test_models_info_prints_a_table_for_people(name: str, capsys: Output) -> None:
    cached()
    assert call("info", name) == 0
    out = capsys.readouterr().out
    for word in ("architecture", "parameters", "F32", "KV cache", "tokenizer", "chat template"):
        assert word in out
    assert re.search(r"\(16\s+bits", re.sub(r"[│\s]+", " ", out)), "the KV cache as the native executor keeps it"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-100], "the file is cut or damaged"),
        (lambda raw: b"GGUX" + raw[4:], "`magic` must be b'GGUF', found b'GGUX'"),
        (lambda raw: raw.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0bloom"), "`general.architecture` is"),
    ],
)
def test_models_info_of_a_damaged_file_fails_with_2_and_one_line(
    damage: Callable[[bytes], bytes], message: str, tmp_path: Path, capsys: Output
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(damage(CONTENT))
    assert call("info", str(path)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {path}: ")
    assert message in err
    assert err.count("\n") == 1


def test_models_pull_shows_a_bar_for_each_stage(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path:
        wheel = directory / "w.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(TINY.member, CONTENT)
        progress(0, 0)
        progress(10, 10)
        return wheel

    monkeypatch.setattr(models, "pull", partial(pull, download=download))
    assert call("pull", "tiny") == 0
    err = capsys.readouterr().err
    assert "downloading tiny" in err
    assert "unpacking tiny" in err
