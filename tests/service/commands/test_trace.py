"""`pellucid trace`: explain, diff, perfetto and blocks on traces of a real engine and on hand-written ones."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.events import Event, PrefixLookup, RequestChunk, RequestPreempted, RequestResumed
from observability.trace_file import TraceWriter
from service.cli import main
from tests.support.trace_script import header, one_request
from tests.support.workload import run_engine

POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return run_engine(seed=1).events


@pytest.fixture
def path(events: list[Event], tmp_path: Path) -> Path:
    return write(tmp_path / "run.jsonl.gz", events)


def write(path: Path, events: list[Event], **changes: object) -> Path:
    with TraceWriter(path, header(**{**POOL, **changes})) as writer:
        writer.write(events)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["trace", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# --- explain -----------------------------------------------------------------------------------------------------


def test_summary_has_a_row_for_every_request(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    code, out, err = run(capsys, "explain", path, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert len(told["requests"]) == 40
    assert {row["outcome"] for row in told["requests"]} == {"finished", "aborted"}
    assert any(row["num_preemptions"] for row in told["requests"])
    assert any("kv_blocks" in row["waits"] for row in told["requests"])
    code, out, _ = run(capsys, "explain", path)
    assert code == 0
    assert "24 blocks of 4 tokens" in out
    assert all(f"r{number} " in out for number in range(1, 41))


def explained(capsys: pytest.CaptureFixture[str], path: Path, request: str) -> str:
    code, out, _ = run(capsys, "explain", path, request)
    assert code == 0
    return out


def test_explanation_says_why_a_request_waited_missed_and_was_preempted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = one_request().arrive("b", num_prompt=6, max_tokens=3)
    script.step().step_done(blocks=(5, 0, 1))
    script.step()
    fields = {"position": 4, "block_id": 0, "expected_token": 11, "actual_token": 12}
    script.say(PrefixLookup, request_id="b", num_prompt_tokens=6, num_matched_tokens=4, why="diverged", **fields)
    script.admit("b", cached=4).share(0, "b", 0, refs=1).allocate(1, "b", 1).chunk("b", 4, 2).first_token("b")
    script.step_done(prefill=2, generated=1, blocks=(4, 2, 0)).arrive("c", num_prompt=5)
    script.step().say(RequestPreempted, request_id="b", num_lost_tokens=6, num_preemptions=1).release(1, "b").free(1)
    script.release(0, "b").admit("c").allocate(2, "c", 0).step_done(blocks=(4, 1, 1))
    script.step().say(RequestResumed, request_id="b", num_cached_tokens=4, num_recompute_tokens=2)
    script.share(0, "b", 0, refs=1).allocate(1, "b", 1)
    script.say(RequestChunk, request_id="b", start=4, num_tokens=3, num_recomputed=2).token("b", 2)
    script.step_done(prefill=3, generated=1, blocks=(3, 3, 0))
    text = explained(capsys, write(tmp_path / "a.jsonl", script.events, num_blocks=6), "b")
    assert "waited" in text
    assert "at position 4 the prompt parts from what is cached in block 0 (token 12 where the cache has 11)" in text
    assert "Request c got the next block. 6 computed tokens were given up." in text
    assert "computed 2 tokens again" in text
    assert "5 tokens, 2 of them a second time, were computed in 2 chunks (steps 3 to 5)" in text
    assert text.rstrip().endswith("still in flight, with 2 tokens.")


def test_explanation_of_every_request_of_an_engine_is_sentences(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    for number in range(1, 41, 7):
        code, out, _ = run(capsys, "explain", path, f"r{number}", "--json")
        assert code == 0
        assert all(line.endswith(".") and "None" not in line for line in json.loads(out)["sentences"])


def test_explanation_of_an_unknown_or_ambiguous_request_is_exit_code_two(
    capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    assert run(capsys, "explain", path, "nobody")[0] == 2
    code, _, err = run(capsys, "explain", path, "r")
    assert code == 2
    assert err == f"error: 40 requests of {path} begin with 'r'\n"


# --- diff --------------------------------------------------------------------------------------------------------


def renamed(event: Event) -> Event:
    request_id = getattr(event, "request_id", None)
    changes: dict[str, Any] = {"t": event.t * 2}
    if request_id is not None:
        changes["request_id"] = f"other-{request_id}"
    return msgspec.structs.replace(event, **changes)


def test_same_decisions_at_other_times_under_other_names_are_the_same(
    capsys: pytest.CaptureFixture[str], path: Path, events: list[Event], tmp_path: Path
) -> None:
    other = write(tmp_path / "b.jsonl", [renamed(event) for event in events], wall_origin_s=1.0, life="x")
    code, out, _ = run(capsys, "diff", path, other)
    assert code == 0
    assert out.startswith("the same: ")


def test_first_difference_settings_and_requests_are_named(
    capsys: pytest.CaptureFixture[str], path: Path, events: list[Event], tmp_path: Path
) -> None:
    place = next(place for place, event in enumerate(events) if place > 300 and isinstance(event, RequestChunk))
    changed = [*events]
    changed[place] = msgspec.structs.replace(events[place], num_tokens=99)
    other = write(tmp_path / "b.jsonl", changed[:-40], max_num_seqs=7)
    code, out, _ = run(capsys, "diff", path, other, "--json")
    told = json.loads(out)
    assert (code, told["is_same"], told["settings"]) == (1, False, {"max_num_seqs": [6, 7]})
    assert told["first"]["place"] == place + 1
    assert told["first"]["b"]["num_tokens"] == 99
    assert told["requests"][-1]["b"]["outcome"] == "in_flight"
    code, out, _ = run(capsys, "diff", path, other)
    assert code == 1
    assert "setting `max_num_seqs`: 6 in A, 7 in B" in out
    assert f"the first difference is event {place + 1}" in out
    assert "99 in B" in out


# --- perfetto ----------------------------------------------------------------------------------------------------


def test_perfetto_file_is_well_formed_and_complete(
    capsys: pytest.CaptureFixture[str], path: Path, events: list[Event], tmp_path: Path
) -> None:
    out_path = tmp_path / "out.json"
    code, out, _ = run(capsys, "perfetto", path, "-o", out_path, "--json")
    assert code == 0
    assert json.loads(out)["num_bytes"] == out_path.stat().st_size
    records = json.loads(out_path.read_text())["traceEvents"]
    names = {(r["pid"], r["tid"]): r["args"]["name"] for r in records if r["name"] == "thread_name"}
    assert {name.split(" ")[0] for (pid, _), name in names.items() if pid == 2} >= {f"r{n}" for n in range(1, 41)}
    slices = [record for record in records if record["ph"] == "X"]
    free_from: dict[int, float] = {}
    for record in slices:
        assert record["dur"] >= 0
        assert (record["pid"], record["tid"]) in names
        if record["pid"] == 2:
            assert record["ts"] >= free_from.get(record["tid"], -1.0) - 0.002, record
            free_from[record["tid"]] = record["ts"] + record["dur"]
    kinds = {record["name"] for record in slices}
    assert kinds >= {"queue", "decode", "preempted"}
    pool = [record["args"] for record in records if record["name"] == "KV blocks"]
    assert all(sum(counts.values()) == 24 for counts in pool)
    assert len(pool) == sum(1 for event in events if event.__struct_config__.tag == "step_finished")
    assert not any("unfinished" in record.get("args", {}) for record in records)


def test_perfetto_shows_chunks_as_long_as_their_steps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", one_request().events, num_blocks=6)
    code, out, _ = run(capsys, "perfetto", path)
    records = json.loads(out)["traceEvents"]
    step = next(record for record in records if record["name"] == "mixed step")
    chunk = next(record for record in records if record["name"] == "prefill chunk")
    queue = next(record for record in records if record["name"] == "queue")
    assert code == 0
    assert (chunk["ts"], chunk["dur"]) == (step["ts"], step["dur"])
    assert queue["ts"] + queue["dur"] == pytest.approx(step["ts"], abs=0.01)
    assert chunk["args"]["num_tokens"] == 5


# --- blocks, and what all have in common ---------------------------------------------------------------------------


def test_blocks_are_json_lines(capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "blocks", path)
    batches = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {event["type"] for batch in batches for event in batch["events"]} >= {"BlockStored", "BlockRemoved"}
    assert run(capsys, "blocks", path, "-o", tmp_path / "out")[0] == 0
    assert (tmp_path / "out").read_text() == out


@pytest.mark.parametrize(
    "arguments", [["check"], ["explain"], ["perfetto"], ["blocks"], ["diff", "RUN"], ["explain", "--json"]]
)
def test_file_that_isnt_there_or_isnt_a_trace_is_one_line_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path, arguments: list[str]
) -> None:
    given = [str(path) if argument == "RUN" else argument for argument in arguments]
    (tmp_path / "text").write_text("once upon a time\n")
    for bad in ("nope", "text", "."):
        code, out, err = run(capsys, *given, tmp_path / bad)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {tmp_path / bad}")
        assert err.count("\n") == 1
    assert run(capsys, "perfetto", path, "-o", tmp_path / "no" / "where")[0] == 2
