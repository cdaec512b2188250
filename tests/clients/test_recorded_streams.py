"""Every client prints the same for each recorded stream, over a real connection."""

import pytest

from tests.clients.languages import LANGUAGES, run
from tests.clients.recordings import EXPECTED, LIBRARY_REFUSES, TESTDATA, TRACE_ID, allowed, parsed, recording
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


@pytest.mark.parametrize("name", LIBRARY_REFUSES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_chat_stream_of_broken_http_cut_anywhere_prints_what_is_expected(language: str, name: str) -> None:
    data = recording(name)
    step = 23 if language == "javascript" else 3  # a process of Node for each
    cuts = range(1, len(data), step)
    with replaying(*(Answer((data[:cut], data[cut:])) for cut in cuts)) as server:
        for cut in cuts:
            seen = run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID)
            assert seen in allowed(language, name), cut


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "java"])
def test_text_before_a_chunk_that_cannot_be_read_stays_printed(language: str) -> None:
    answer = parsed("plain")
    text = answer.body[: answer.body.index(b"\n\n", answer.body.index(b"The")) + 2]
    head, _, _ = recording("plain").partition(b"\r\n\r\n")
    data = head + b"\r\n\r\n%x\r\n%b\r\nxyz\r\n" % (len(text), text)
    with replaying(Answer((data,)), Answer(bytewise(data))) as server:
        seen = [run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID) for _ in range(2)]
    expected = EXPECTED["bad_chunk_size"].stdout
    assert [(one.code, one.stdout) for one in seen] == [(4, "The\n" + expected)] * 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_chat_stream_whose_connection_is_lost_never_ends_well_before_done(language: str) -> None:
    data = recording("usage_chunk")
    done = data.index(b"[DONE]") + len(b"[DONE]\n\n")
    for kept in (0, 1, 40, data.index(b"\r\n\r\n") + 4, data.index(b"there"), done - 8, done - 1, done, len(data)):
        with replaying(Answer((data[:kept],))) as server:
            seen = run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID)
        assert seen.code == (0 if kept >= done else 4), (kept, seen)
        assert ("finish:" in seen.stdout) == (kept >= done)
