"""A real Prometheus over a real server, with rules that don't take their time."""

import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from observability.prometheus_config import render_prometheus_config, rule_files

SCRAPE_INTERVAL_S = 0.5
TIMEOUT_S = 60.0


class Prometheus:
    """A running Prometheus; `url` is where its API answers.

    Args:
        folder: for its files.
        service_url: what it scrapes.
        altered: makes the rules it is given of the text of the shipped ones, so that they fire at once.
    """

    def __init__(self, folder: Path, *, service_url: str, altered: Callable[[str], str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{address}"
        self._client = httpx.Client(timeout=TIMEOUT_S)
        rules = [folder / path.name for path in rule_files()]
        for shipped, given in zip(rule_files(), rules, strict=True):
            given.write_text(altered(shipped.read_text()))
        config = folder / "prometheus.yml"
        config.write_text(
            render_prometheus_config(
                service_address=service_url.removeprefix("http://"),
                scrape_interval_s=SCRAPE_INTERVAL_S,
                rules=rules,
            )
        )
        command = ["prometheus", f"--config.file={config}", f"--web.listen-address={address}"]
        command += [f"--storage.tsdb.path={folder / 'data'}", "--enable-feature=exemplar-storage"]
        with (folder / "prometheus.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_for("it answers", lambda: _answers(f"{self.url}/-/ready"))

    def get(self, path: str, **parameters: str) -> Any:
        response = self._client.get(f"{self.url}/api/v1/{path}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def samples(self, expr: str) -> list[Any]:
        result: list[Any] = self.get("query", query=expr)["result"]
        return result

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}"
            pause.wait(0.1)

    def close(self) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait(TIMEOUT_S)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=TIMEOUT_S).status_code == 200
    except httpx.HTTPError:
        return False
