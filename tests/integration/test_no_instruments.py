"""`pellucid serve --no-instruments`: answers as ever, and says that it can't be watched."""

import httpx
import pytest

from tests.support.http_calls import CHAT, chat, post
from tests.support.serve_process import ServeProcess

TINY = ("--model", "random:tiny", "--threads", "1")


def answer(*flags: str) -> tuple[str, ServeProcess]:
    served = ServeProcess(*TINY, *flags)
    served.wait_ready()
    body = chat("tell me", max_tokens=20, temperature=0, ignore_eos=True, timings=True)
    answers = [post(served.url, CHAT, body) for _ in range(3)]
    assert {response.status_code for response in answers} == {200}
    return answers[-1].json()["choices"][0]["message"]["content"], served


@pytest.mark.slow
def test_server_without_instruments_answers_the_same_and_refuses_to_be_watched() -> None:
    text, served = answer()
    served.close()
    quiet_text, quiet = answer("--no-instruments")
    try:
        paths = ("/metrics", "/stats", "/telemetry/requests", "/telemetry/kv/live", "/telemetry/traces")
        answers = [httpx.get(quiet.url + path) for path in paths]
        assert httpx.get(quiet.url + "/health").status_code == 200
    finally:
        quiet.close()

    assert quiet_text == text
    assert [response.status_code for response in answers] == [404] * len(paths)
    assert all("--no-instruments" in response.json()["error"]["message"] for response in answers)
