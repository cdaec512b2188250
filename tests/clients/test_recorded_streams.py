"""Every client prints the same for each recorded stream, over a real connection."""

import pytest

from tests.clients.languages import LANGUAGES, run
from tests.clients.recordings import EXPECTED, TESTDATA, TRACE_ID, allowed, recording
from tests.clients.replay_server import Answer, replaying


def bytewise(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[at : at + 1] for at in range(len(data)))


def test_every_recording_has_an_expectation_and_the_other_way_round() -> None:
    assert {path.stem for path in TESTDATA.glob("*.http")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("language", LANGUAGES)
def test_chat_stream_of_a_recording_whole_and_byte_by_byte_prints_what_is_expected(language: str, name: str) -> None:
    data = recording(name)
    with replaying(Answer((data,)), Answer(bytewise(data))) as server:
        seen = [run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID) for _ in range(2)]
    assert all(one in allowed(language, name) for one in seen), seen


@pytest.mark.parametrize("language", LANGUAGES)
def test_chat_stream_whose_connection_is_lost_never_ends_well_before_done(language: str) -> None:
    data = recording("usage_chunk")
    done = data.index(b"[DONE]") + len(b"[DONE]\n\n")
    for kept in (0, 1, 40, data.index(b"\r\n\r\n") + 4, data.index(b"there"), done - 8, done - 1, done, len(data)):
        with replaying(Answer((data[:kept],))) as server:
            seen = run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID)
        assert seen.code == (0 if kept >= done else 4), (kept, seen)
        assert ("finish:" in seen.stdout) == (kept >= done)
