"""Loads against an https server whose certificate nobody but the test trusts."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from loadtest.arrivals import Closed
from loadtest.errors import TargetError
from loadtest.load_result import LoadResult
from loadtest.load_run import run_load
from loadtest.plan import LoadPlan
from loadtest.target import Target
from tests.clients.builds import require
from tests.support.timed_server import MODEL, steady, timed_server_here


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a self-signed certificate for localhost and its key."""
    require("openssl")
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extensions = ("-addext", "subjectAltName=DNS:localhost")
    command = ["openssl", *options.split(), *extensions, "-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    file.write_text(file.with_suffix(".crt").read_text() + file.read_text())
    return file


def load(certificate: Path, *, model: str) -> LoadResult:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def run() -> LoadResult:
        async with timed_server_here(lambda number, body: steady(3), tls=tls) as server:
            plan = LoadPlan(arrivals=Closed(concurrency=2), num_requests=4)
            return await run_load(Target(url=server.url, model=model), plan)

    return asyncio.run(run())


def test_load_on_an_https_server_whose_certificate_is_trusted_succeeds(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    result = load(certificate, model="")
    assert result.model == MODEL
    assert [request.error for request in result.requests] == [""] * 4


@pytest.mark.parametrize("model", ["", MODEL])
def test_load_on_an_https_server_whose_certificate_is_unknown_is_refused(certificate: Path, model: str) -> None:
    with pytest.raises(TargetError, match="CERTIFICATE_VERIFY_FAILED"):
        load(certificate, model=model)
