"""Trace files: written, read back, damaged on purpose."""

import gzip
from pathlib import Path

import msgspec
import pytest

from engine.events import EngineStarted
from observability.trace_codec import TraceEvent, TraceFormatError, UnknownEvent, encode_event
from observability.trace_file import TraceReader, TraceWriter
from observability.trace_header import header_of
from observability.trace_source import MAX_LINE_BYTES
from tests.support.trace_script import header, one_request

UNKNOWN = b'{"type":"thought","seq":1,"t":0.5,"step":0,"mood":["calm",{"depth":2}]}'


def read(path: Path) -> list[TraceEvent]:
    with TraceReader(path) as reader:
        return list(reader)


def write(path: Path) -> list[TraceEvent]:
    events = one_request().events
    with TraceWriter(path, header()) as writer:
        writer.write(events[:3])
        writer.write(events[3:])
    return events  # type: ignore[return-value]


def write_lines(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join((msgspec.json.encode(header()), *lines)) + b"\n")
    return path


def test_header_of_an_engine_takes_what_it_said_at_its_start() -> None:
    started = EngineStarted(
        seq=1,
        t=4.0,
        step=0,
        model="m",
        executor="torch",
        block_size=16,
        num_blocks=100,
        max_num_seqs=8,
        max_num_batched_tokens=512,
        max_model_len=2048,
        prefix_cache=False,
    )
    made = header_of(started, wall_origin_s=1.8e9, monotonic_origin_s=3.5, tokenizer="gpt2", num_dropped_events=7)
    assert made == header(
        model="m",
        executor="torch",
        tokenizer="gpt2",
        block_size=16,
        num_blocks=100,
        max_num_seqs=8,
        max_num_batched_tokens=512,
        max_model_len=2048,
        prefix_cache=False,
        wall_origin_s=1.8e9,
        monotonic_origin_s=3.5,
        num_dropped_events=7,
    )


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_trace_written_and_read_is_equal(tmp_path: Path, name: str) -> None:
    events = write(tmp_path / name)
    with TraceReader(tmp_path / name) as reader:
        assert reader.header == header()
        assert list(reader) == events
        assert not reader.truncated


def test_trace_named_gz_is_gzip_and_its_lines_are_the_plain_ones(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl")
    write(tmp_path / "a.jsonl.gz")
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == (tmp_path / "a.jsonl").read_bytes()


def test_trace_gzip_under_a_plain_name_is_recognised(tmp_path: Path) -> None:
    events = write(tmp_path / "a.gz")
    (tmp_path / "a.gz").rename(tmp_path / "a.jsonl")
    assert read(tmp_path / "a.jsonl") == events


def test_unknown_event_is_kept_marked_and_written_back_unchanged(tmp_path: Path) -> None:
    (event,) = read(write_lines(tmp_path / "a.jsonl", UNKNOWN))
    assert isinstance(event, UnknownEvent)
    assert (event.type, event.seq, event.step) == ("thought", 1, 0)
    assert event.fields == {"mood": ["calm", {"depth": 2}]}
    assert encode_event(event) == UNKNOWN


def test_known_event_with_a_wrong_field_names_line_event_and_field(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", b'{"type":"block_freed","seq":1,"t":0.5,"step":0,"block_id":"x"}')
    with pytest.raises(TraceFormatError, match=r"line 2: event `block_freed`.*int.*block_id"):
        read(path)


def test_known_event_with_a_field_more_is_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", b'{"type":"block_freed","seq":1,"t":0.5,"step":0,"block_id":3,"new":1}')
    assert [type(event).__name__ for event in read(path)] == ["BlockFreed"]


@pytest.mark.parametrize("line", [b"[1,2", b"nonsense", b"17", b"[]", b'{"type":"thought"}', b'{"type":3}'])
def test_line_that_is_no_event_is_refused(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(TraceFormatError, match="line 2: not"):
        read(write_lines(tmp_path / "a.jsonl", line))


def test_deep_nesting_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    with pytest.raises(TraceFormatError, match="nested deeper than 32 levels"):
        read(write_lines(tmp_path / "a.jsonl", UNKNOWN.replace(b'["calm",{"depth":2}]', deep)))


def test_deep_nesting_in_a_field_more_of_a_known_event_is_refused(tmp_path: Path) -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    line = b'{"type":"block_freed","seq":1,"t":0.5,"step":0,"block_id":3,"new":' + deep + b"}"
    with pytest.raises(TraceFormatError, match="nested deeper than 32 levels"):
        read(write_lines(tmp_path / "a.jsonl", line))


def test_deep_nesting_in_the_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"schema":"pellucid-trace","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}\n")
    with pytest.raises(TraceFormatError, match=r"line 1: .*nested deeper"):
        read(path)


def test_many_brackets_inside_a_string_are_text(tmp_path: Path) -> None:
    text = b'"' + b'[{\\"' * 100 + b'"'
    (event,) = read(write_lines(tmp_path / "a.jsonl", UNKNOWN.replace(b'["calm",{"depth":2}]', text)))
    assert isinstance(event, UnknownEvent)
    assert event.fields == {"mood": '[{"' * 100}


def test_flat_line_with_many_brackets_is_read(tmp_path: Path) -> None:
    flat = b"[" + b",".join([b"[]"] * 100) + b"]"
    (event,) = read(write_lines(tmp_path / "a.jsonl", UNKNOWN.replace(b'["calm",{"depth":2}]', flat)))
    assert isinstance(event, UnknownEvent)


def test_line_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=f"line 2: longer than {MAX_LINE_BYTES} bytes"):
        read(write_lines(tmp_path / "a.jsonl", b" " * (MAX_LINE_BYTES + 1)))


@pytest.mark.parametrize(
    "first_line",
    [b"", b"{}", b'{"schema":"other","version":1}', b"\x00\x01", msgspec.json.encode(header(version=3))],
)
def test_file_without_a_header_is_refused(tmp_path: Path, first_line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(first_line + b"\n")
    with pytest.raises(TraceFormatError, match="line 1"):
        TraceReader(path)


@pytest.mark.parametrize("name", ["block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens"])
def test_header_with_a_zero_size_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(msgspec.json.encode(header(**{name: 0})) + b"\n")
    with pytest.raises(TraceFormatError, match=f"`{name}` must be at least 1, got 0"):
        TraceReader(path)


def test_plain_file_cut_at_every_byte_gives_a_prefix_of_its_events(tmp_path: Path) -> None:
    events = write(tmp_path / "whole.jsonl")
    data = (tmp_path / "whole.jsonl").read_bytes()
    path = tmp_path / "cut.jsonl"
    for stop in range(data.index(b"\n") + 1, len(data), 7):
        path.write_bytes(data[:stop])
        with TraceReader(path) as reader:
            got = list(reader)
            assert got == events[: len(got)]
            assert reader.truncated == (data[stop - 1 : stop] not in (b"\n", b"}"))


def test_gzip_cut_short_gives_a_prefix_and_says_so(tmp_path: Path) -> None:
    events = write(tmp_path / "a.gz")
    data = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(data[:-20])
    with TraceReader(tmp_path / "a.gz") as reader:
        got = list(reader)
        assert reader.truncated
    assert got == events[: len(got)]


def test_gzip_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(b"\x1f\x8b" + b"\x07" * 40)
    with pytest.raises(TraceFormatError, match="damaged gzip data"):
        TraceReader(path)


def test_reader_closes_its_file(tmp_path: Path) -> None:
    write(tmp_path / "a.gz")
    with TraceReader(tmp_path / "a.gz") as reader:
        next(iter(reader))
    with pytest.raises(ValueError, match="closed"):
        next(iter(reader))
