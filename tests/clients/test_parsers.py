"""The recorded bodies cut at every byte, in one process of each language that has a worker."""

import pytest

from tests.clients.languages import WORKER_LANGUAGES, worker
from tests.clients.recordings import EXPECTED, LIBRARY_REFUSES, parsed


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in LIBRARY_REFUSES])
@pytest.mark.parametrize("language", WORKER_LANGUAGES)
def test_recording_cut_at_every_byte_gives_the_expected_output(language: str, name: str) -> None:
    answer = parsed(name)
    seen = worker(language).replay("cut", answer.status, answer.headers, answer.body, is_whole=answer.is_whole)
    assert seen == EXPECTED[name]


@pytest.mark.parametrize("name", ["plain", "usage_chunk"])
@pytest.mark.parametrize("language", WORKER_LANGUAGES)
def test_stream_lost_after_each_byte_succeeds_only_once_done_has_come(language: str, name: str) -> None:
    answer = parsed(name)
    done = answer.body.index(b"[DONE]") + len(b"[DONE]\n\n")
    seen = worker(language).replay("lose", answer.status, answer.headers, answer.body, is_whole=False)
    assert seen.stdout == f"0 4\n{done} 0\n"


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


TEXT = event(b'{"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}')
DONE = event(b"[DONE]")
UNUSUAL = {
    "depth 100": (event(b"[" * 100 + b"]" * 100)[:-2] + b"\n\n" + TEXT, "the answer can't be read: JSON"),
    "100 deep in an unknown member": (event(b'{"x":' + b"[" * 99 + b"]" * 99 + b"}") + TEXT, ""),
    "101 deep in an unknown member": (
        event(b'{"x":' + b"[" * 100 + b"]" * 100 + b"}"),
        "the answer can't be read: JSON",
    ),
    "overlong slash": (event(b'{"x":"\xc0\xaf"}'), "the answer can't be read: UTF-8"),
    "surrogate in UTF-8": (event(b'{"x":"\xed\xa0\x80"}'), "the answer can't be read: UTF-8"),
    "beyond U+10FFFF": (event(b'{"x":"\xf4\x90\x80\x80"}'), "the answer can't be read: UTF-8"),
    "number with a leading zero": (event(b'{"x":01}'), "the answer can't be read: JSON"),
    "number without digits": (event(b'{"x":-}'), "the answer can't be read: JSON"),
    "number with a bare point": (event(b'{"x":1.}'), "the answer can't be read: JSON"),
    "NaN": (event(b'{"x":NaN}'), "the answer can't be read: JSON"),
    "huge and tiny numbers": (event(b'{"x":[1e999,-1e999,1e-999,-0.0E+1]}') + TEXT, ""),
    "trailing comma": (event(b'{"x":1,}'), "the answer can't be read: JSON"),
    "two values": (event(b"{} {}"), "the answer can't be read: JSON"),
    "control character in a string": (event(b'{"x":"\t"}'), "the answer can't be read: JSON"),
    "unknown escape": (event(b'{"x":"\\x41"}'), "the answer can't be read: JSON"),
    "escape with a sign": (event(b'{"x":"\\u+041"}'), "the answer can't be read: JSON"),
    "escape cut off": (event(b'{"x":"\\u00"}'), "the answer can't be read: JSON"),
    "byte order mark in the middle": (event(b"\xef\xbb\xbf{}"), "the answer can't be read: JSON"),
    "byte order mark at the start": (b"\xef\xbb\xbf" + TEXT, ""),
    "index of another choice": (event(b'{"choices":[{"index":1,"delta":{"content":"no"}},{"index":null}]}') + TEXT, ""),
    "choices that are none": (event(b'{"choices":[1,null,"x",[]]}') + event(b'{"choices":{}}') + TEXT, ""),
    "false error": (event(b'{"error":false}'), "the server failed: unknown error"),
    "empty message": (event(b'{"error":{"message":""}}'), "the server failed: "),
    "longest event": (event(b'{"x":"' + b"a" * (1048576 - 8) + b'"}') + TEXT, ""),
    "event that is too long": (event(b'{"x":"' + b"a" * (1048576 - 7) + b'"}'), "an event is longer"),
    "line that never ends": (b"x" * (1048576 + 7), "the answer can't be read: an event is longer than 1048576 bytes"),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("language", WORKER_LANGUAGES)
def test_unusual_event_is_read_or_refused(language: str, name: str) -> None:
    body, failure = UNUSUAL[name]
    seen = worker(language).replay("once", 200, "content-type:text/event-stream", body + DONE, is_whole=True)
    if failure:
        assert failure in seen.stderr
        assert "finish" not in seen.stdout
    else:
        assert (seen.code, seen.stderr) == (0, "")
        assert seen.stdout.startswith("ok\nfinish: stop\n")
