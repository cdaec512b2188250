"""`pellucid serve --record`: the trace of a server's whole life, checked after it has ended."""

import signal
from pathlib import Path

import httpx
import pytest

from observability.trace_check import check_trace
from tests.integration.test_serve_process import serving
from tests.support.http_calls import CHAT, chat, post


@pytest.mark.slow
def test_recorded_life_of_a_server_is_a_whole_and_sound_trace(tmp_path: Path) -> None:
    with serving("--record", "--trace-dir", str(tmp_path / "traces")) as served:
        for _ in range(3):
            assert post(served.url, CHAT, chat("secret words", max_tokens=5)).status_code == 200
        state = httpx.get(served.url + "/telemetry/kv/recording").json()
        assert state["state"] == "recording"
        served.process.send_signal(signal.SIGTERM)
        assert served.wait() == 0, served.lines
    (path,) = (tmp_path / "traces").iterdir()
    assert path.name == state["files"][0]["name"]
    report = check_trace(path)
    assert report.ok, report.to_text()
    assert (report.from_start, report.truncated) == (True, False)
    assert report.num_ended == {"finished": 3}
    assert report.num_in_flight == 0
