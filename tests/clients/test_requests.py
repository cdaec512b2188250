"""What clients send, when they send it again, and how long they wait."""

import json
import re
import socket
from dataclasses import replace

import pytest

from tests.clients.languages import LANGUAGES, run
from tests.clients.recordings import EXPECTED, TESTDATA, TRACE_ID, recording
from tests.clients.replay_server import Answer, replaying
from tests.clients.runs import Run

LADDER_HEAD = "concurrency      ok  failed    tokens/s  speedup  ttft p50 ms   itl p50 ms\n"
LADDER_RULE = "--ladder must be at most 16 rising whole numbers from 1 to 256 with commas between"
STREAM = Answer((recording("usage_chunk"),), then="keep")
BODY = (
    '{"messages":[{"role":"user","content":%s}],"temperature":0,"max_tokens":7,'
    '"stream":true,"stream_options":{"include_usage":true}}'
)


def busy(status: str, retry_after: str) -> Answer:
    head = f"HTTP/1.1 {status}\r\n{retry_after}content-type: application/json\r\ncontent-length: 35\r\n\r\n"
    return Answer((head.encode() + b'{"error":{"message":"queue full"}} ',), then="keep")


@pytest.mark.parametrize("language", LANGUAGES)
def test_request_has_the_body_and_the_headers_of_the_contract(language: str) -> None:
    prompt = 'Grüße "\\\n\t\x01 🎉'
    with replaying(STREAM) as server:
        seen = run(
            *(language, "chat-stream", "--url", server.url + "/v1/", "--max-tokens", "7", "--prompt", prompt),
            *("--trace-id", TRACE_ID),
            environment={"PELLUCID_API_KEY": "k-1"},
        )
    assert seen == EXPECTED["usage_chunk"]
    (request,) = server.requests
    assert request.head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert request.body.decode() == BODY % json.dumps(prompt, ensure_ascii=False)
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-01", request.header("traceparent"))
    assert request.header("authorization") == "Bearer k-1"
    assert request.header("content-type") == "application/json"
    assert request.header("accept") == "text/event-stream"
    assert request.header("host") == server.url.removeprefix("http://")
    assert request.header("upgrade") == ""
    assert request.header("http2-settings") == ""


@pytest.mark.parametrize("language", LANGUAGES)
def test_trace_ids_are_random_and_differ_between_requests(language: str) -> None:
    with replaying(STREAM) as server:
        assert run(language, "probe", "--url", server.url, "--requests", "3").code == 0
    ids = {request.header("traceparent").split("-")[1] for request in server.requests}
    assert len(ids) == 3


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_busy_server_is_asked_again_after_retry_after(language: str, status: str) -> None:
    refusal = busy(status, "retry-after: 0\r\n")
    with replaying(refusal, refusal, STREAM) as server:
        seen = run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID)
    assert (seen.code, seen.stdout) == (0, EXPECTED["usage_chunk"].stdout)
    assert seen.stderr == f"retry: the server answered {status[:3]}, waiting 0 s\n" * 2
    assert len(server.requests) == 3


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("retry_after", ["retry-after: 1\r\n", "", "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n"])
def test_retry_waits_for_the_seconds_of_retry_after_or_for_one(language: str, retry_after: str) -> None:
    with replaying(busy("503 Service Unavailable", retry_after), STREAM) as server:
        seen = run(language, "chat-stream", "--url", server.url)
    assert (seen.code, seen.stderr) == (0, "retry: the server answered 503, waiting 1 s\n")
    refused, answered = server.requests
    assert answered.received_at - refused.received_at > 0.99


@pytest.mark.parametrize("language", LANGUAGES)
def test_busy_server_that_stays_busy_or_wants_too_long_a_wait_is_a_failure(language: str) -> None:
    with replaying(busy("429 Too Many Requests", "retry-after: 0\r\n")) as server:
        seen = run(language, "chat-stream", "--url", server.url, "--retries", "1")
    assert (seen.code, len(server.requests)) == (1, 2)
    assert seen.stderr.splitlines()[-1] == "error: the server answered 429: queue full"
    with replaying(busy("503 Service Unavailable", "retry-after: 31\r\n")) as server:
        seen = run(language, "chat-stream", "--url", server.url)
    assert (seen.code, seen.stderr) == (1, "error: the server answered 503: queue full\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_silence_ends_a_stream_but_a_long_answer_does_not(language: str) -> None:
    data = recording("usage_chunk")
    with replaying(Answer((data[:-200],), then="hang")) as server:
        seen = run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID, "--idle-timeout-ms", "300")
    assert (seen.code, seen.stderr) == (5, "error: nothing arrived for 300 ms\n")
    assert "finish:" not in seen.stdout


@pytest.mark.parametrize("language", LANGUAGES)
def test_server_that_is_not_there_is_no_connection(language: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        authority = f"127.0.0.1:{unused.getsockname()[1]}"
        seen = run(language, "chat", "--url", f"http://{authority}")
    assert (seen.code, seen.stdout, seen.stderr) == (3, "", f"error: no connection to {authority}\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_server_that_accepts_no_connection_is_given_up_in_time(language: str) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        authority = f"127.0.0.1:{full.getsockname()[1]}"
        with socket.create_connection(full.getsockname()):  # fills the backlog: further ones get no answer
            seen = run(language, "models", "--url", f"http://{authority}", "--connect-timeout-ms", "200")
    assert (seen.code, seen.stderr) == (3, f"error: no connection to {authority} within 200 ms\n")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("language", LANGUAGES)
def test_server_at_an_ipv6_address_is_reached(language: str) -> None:
    with replaying(STREAM, family=socket.AF_INET6) as server:
        assert run(language, "chat-stream", "--url", server.url, "--trace-id", TRACE_ID) == EXPECTED["usage_chunk"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_load_keeps_connections_and_counts_no_failure_as_a_success(language: str) -> None:
    failed = Answer((recording("error_in_the_middle"),), then="keep")
    with replaying(STREAM, failed, STREAM, STREAM) as server:
        seen = run(language, "load", "--url", server.url, "--requests", "6", "--concurrency", "1")
    lines = seen.stdout.splitlines()
    assert seen.code == 1
    assert lines[:3] == ["concurrency: 1", "requests: 5 ok, 1 failed", "tokens: 25"]
    assert lines[4].startswith("ttft ms: n=5 p50=")
    assert lines[5].startswith("itl ms: n=5 p50=")
    assert lines[6].startswith("total ms: n=5 p50=")
    assert seen.stderr == "error: the server failed: the engine stopped request req-1\n"
    assert len({request.connection for request in server.requests}) <= 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_probe_prints_percentiles_only_where_there_are_enough_values(language: str) -> None:
    with replaying(STREAM) as server:
        seen = run(language, "probe", "--url", server.url, "--requests", "10")
    value = r"\d+\.\d{3}"
    few = rf"n=10 p50={value} p90={value} p99=- max={value}"
    connect = few if language == "c" else r"n=0 p50=- p90=- p99=- max=-"
    assert re.fullmatch(
        "requests: 10 ok, 0 failed\ntokens: 50\n"
        rf"connect ms: {connect}\nttft ms: {few}\nitl ms: {few}\ntotal ms: {few}\n",
        seen.stdout,
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_request_on_a_kept_connection_that_ends_without_an_answer_goes_out_once_more(language: str) -> None:
    with replaying(STREAM, Answer(()), by_connection=True) as server:
        seen = run(language, "load", "--url", server.url, "--requests", "6", "--concurrency", "1")
    assert (seen.code, seen.stderr) == (0, "")
    assert "requests: 6 ok, 0 failed\ntokens: 30\n" in seen.stdout
    assert len({request.connection for request in server.requests}) == 6
    assert len(server.requests) > 6


@pytest.mark.parametrize("language", LANGUAGES)
def test_fresh_connection_that_ends_without_an_answer_is_a_failure_after_kept_ones_too(language: str) -> None:
    with replaying(replace(STREAM, then="close"), Answer(())) as server:
        seen = run(language, "load", "--url", server.url, "--requests", "2", "--concurrency", "1")
    assert (seen.code, seen.stderr) == (1, "error: the connection ended before the answer was complete\n")
    assert "requests: 1 ok, 1 failed\n" in seen.stdout
    assert len(server.requests) <= 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_load_outlives_kept_connections_that_the_server_gives_up(language: str) -> None:
    with replaying(Answer((recording("usage_chunk"),))) as server:
        seen = run(language, "load", "--url", server.url, "--requests", "400", "--concurrency", "8")
    assert (seen.code, seen.stderr) == (0, "")
    assert "requests: 400 ok, 0 failed\ntokens: 2000\n" in seen.stdout


@pytest.mark.parametrize("language", LANGUAGES)
def test_connection_that_ends_without_an_answer_is_not_tried_again_and_names_its_trace(language: str) -> None:
    with replaying(Answer((b"",))) as server:
        seen = run(language, "chat", "--url", server.url, "--trace-id", TRACE_ID)
    assert (seen.code, seen.stdout) == (4, f"trace: {TRACE_ID} http://127.0.0.1:3100/#trace={TRACE_ID}\n")
    assert seen.stderr == "error: the connection ended before the answer was complete\n"
    assert len(server.requests) == 1


@pytest.mark.parametrize("then", ["keep", "keep anyway"])
@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "javascript"])
def test_probe_takes_a_connection_of_its_own_for_every_stream(language: str, then: str) -> None:
    with replaying(replace(STREAM, then=then)) as server:
        assert run(language, "probe", "--url", server.url, "--requests", "4").code == 0
    assert len({request.connection for request in server.requests}) == 4


@pytest.mark.parametrize("language", LANGUAGES)
def test_ladder_prints_a_row_for_each_rung_and_no_knee_when_all_failed(language: str) -> None:
    with replaying(Answer((recording("error_first"),))) as server:
        seen = run(language, "load", "--url", server.url, "--requests", "2", "--ladder", "1,16")
    rungs = [f"{rung:>11} {0:>7} {2:>7} {0.0:>11} {'-':>8} {'-':>12} {'-':>12}\n" for rung in (1, 16)]
    assert seen == Run(1, LADDER_HEAD + "".join(rungs) + "knee: -\n", "error: the server failed: unknown error\n" * 4)
    assert len(server.requests) == 5


USAGE_ERRORS = {
    (): "no program given; one of models, chat, chat-stream, probe, load",
    ("talk",): "unknown program talk; one of models, chat, chat-stream, probe, load",
    ("chat", "--temperature", "1"): "unknown flag --temperature",
    ("chat", "--prompt"): "--prompt needs a value",
    ("chat", "--max-tokens", "0"): "--max-tokens must be a whole number from 1 to 1000000, got 0",
    ("load", "--concurrency", "1e2"): "--concurrency must be a whole number from 1 to 256, got 1e2",
    ("load", "--ladder"): "--ladder needs a value",
    ("load", "--ladder", ""): f"{LADDER_RULE}, got ",
    ("load", "--ladder", "1,2,2"): f"{LADDER_RULE}, got 1,2,2",
    ("load", "--ladder", "1, 2"): f"{LADDER_RULE}, got 1, 2",
    ("load", "--ladder", "1,2,"): f"{LADDER_RULE}, got 1,2,",
    ("load", "--ladder", "1,257"): f"{LADDER_RULE}, got 1,257",
    ("load", "--ladder", ",".join(map(str, range(1, 18)))): f"{LADDER_RULE}, got {','.join(map(str, range(1, 18)))}",
    ("chat", "--url", "https://a"): "--url must be http://HOST[:PORT], got https://a",
    ("chat", "--url", "http://a:70000"): "--url must be http://HOST[:PORT], got http://a:70000",
    ("chat", "--url", "http://u@a/x"): "--url must be http://HOST[:PORT], got http://u@a/x",
    ("chat", "--trace-id", "0" * 32): f"--trace-id must be 32 lower-case hexadecimal digits, not all 0, got {'0' * 32}",
}


@pytest.mark.parametrize("arguments", USAGE_ERRORS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_bad_usage_is_refused_in_the_words_of_the_contract(language: str, arguments: tuple[str, ...]) -> None:
    seen = run(language, *arguments)
    assert (seen.code, seen.stdout, seen.stderr) == (2, "", f"error: {USAGE_ERRORS[arguments]}\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_help_is_the_text_of_the_contract(language: str) -> None:
    seen = run(language, "chat", "--help")
    assert (seen.code, seen.stdout, seen.stderr) == (0, (TESTDATA / "help.txt").read_text(), "")
