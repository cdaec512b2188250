"""The KV replay in a real browser over a real service: the ring, files, jumps, links, and how fast it is."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from dashboard.server import create_app
from engine.config import SchedulerConfig
from engine.execution.simulated_executor import hashed_tokens
from tests.browser.conftest import MOVES, SCREENSHOTS, TOO_WIDE, Page
from tests.browser.keyboard import unreached_by_keyboard
from tests.support.loopback import serving
from tests.support.recorded_traffic import record_traffic
from tests.support.scripted_service import ScriptedCore, Served, serve
from tests.support.stub_service import Stub

POOL = SchedulerConfig(block_size=16, num_kv_blocks=64, max_num_seqs=8, max_num_batched_tokens=128, max_model_len=1024)
NUM_EVENTS = 100_000
MAX_OPEN_S = 2.0
MIN_FPS = 30.0
ATTEMPTS = 3  # the machine has other work as well: the best counts

OPENING = """
const input = document.getElementById("replay-file");
const name = document.querySelector("[data-part=name]");
let start = 0;
input.addEventListener("change", () => (start = performance.now()), { capture: true });
window.openedMs = 0;
new MutationObserver((_, observer) => {
  if (!start || !name.textContent.includes("100,000 events")) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => (window.openedMs = performance.now() - start)));
}).observe(name, { childList: true, characterData: true, subtree: true });
"""
SCRUBBING = """
const done = arguments[0];
const slider = document.querySelector("[data-part=overview] canvas");
const press = (key) => slider.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
press("Home");
let frames = 0;
const start = performance.now();
function frame(now) {
  const seconds = (now - start) / 1000;
  if (seconds > 2) return done(frames / seconds);
  frames++;
  if (frames % 20 === 0) press("Home");
  else press(frames % 7 === 0 ? "PageDown" : "PageUp");
  if (frames % 3 === 0) press("ArrowRight");
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""
PLAYING = """
const done = arguments[0];
const place = document.querySelector("[data-part=place]");
let moves = 0;
const observer = new MutationObserver(() => moves++);
document.getElementById("replay-speed").value = "0.1";
document.getElementById("replay-speed").dispatchEvent(new Event("change"));
const home = new KeyboardEvent("keydown", { key: "Home", bubbles: true });
document.querySelector("[data-part=overview] canvas").dispatchEvent(home);
observer.observe(place, { childList: true, characterData: true, subtree: true });
document.getElementById("replay-play").click();
setTimeout(() => {
  document.getElementById("replay-play").click();
  observer.disconnect();
  done(moves);
}, 900);
"""
SAVED = """
window.saved = [];
URL.createObjectURL = (blob) => {
  blob.text().then((text) => window.saved.push([blob.type, text.slice(0, 400)]));
  return "#replay";
};
"""
DROP = """
const files = new DataTransfer();
files.items.add(new File([arguments[0]], arguments[1]));
window.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
"""


@contextmanager
def stack(browser: Chrome) -> Iterator[tuple[Page, Served]]:
    core = ScriptedCore(script=hashed_tokens(250), scheduling=POOL)
    with serve(core=core) as served, serving(create_app(served.url, poll_interval_s=0.2)) as url:
        page = Page(browser, url, Stub())
        page.emulate(width=1280, height=1000)
        page.console()
        try:
            yield page, served
        finally:
            browser.get("about:blank")  # an open feed would hold up the end


def load(served: Served, num_requests: int, *, first: int = 0) -> list[str]:
    """Send requests that share a beginning and are too many for the pool; return their trace ids."""

    def ask(number: int) -> str:
        prompt = "a system prompt that everybody sends, " * 6 + f"user {number} " + "x" * (number * 17 % 90)
        body = {"model": "scripted", "prompt": prompt, "max_tokens": 60 + number * 7 % 60, "ignore_eos": True}
        answer = served.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-trace-id"]

    with ThreadPoolExecutor(10) as pool:
        return list(pool.map(ask, range(first, first + num_requests)))


def saved(page: Page) -> list[list[str]]:
    files = page.run("return window.saved")
    assert isinstance(files, list)
    return files


def jump(page: Page, kind: str) -> None:
    page.find(f"[data-jump={kind}]").click()


def test_recorded_trace_is_dropped_in_stepped_through_and_linked(browser: Chrome, tmp_path: Path) -> None:
    with stack(browser) as (page, served):
        load(served, 24)
        path = tmp_path / "recorded.jsonl"
        path.write_bytes(httpx.get(f"{page.url}/api/telemetry/kv/trace").content)
        num_events = len(path.read_bytes().splitlines()) - 1
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        page.find("#replay-file").send_keys(str(path))
        page.wait_text("[data-part=status]", "File")
        assert f"{num_events:,} events" in page.text("[data-part=name]")

        jump(page, "preemption")
        page.wait_text("[data-part=event] h4", "preempted")
        assert "newest of the lowest priority" in page.text("[data-part=event]")
        jump(page, "eviction")
        page.wait_text("[data-part=event] h4", "block evicted")
        assert "Room was needed" in page.text("[data-part=event]")
        page.find("[data-part=lanes] canvas").send_keys("c")
        page.wait_text("[data-part=event] h4", "block copied")
        assert "Copy-on-write" in page.text("[data-part=event]")

        page.run(SAVED)
        page.find("#replay-png").click()
        page.find("#replay-perfetto").click()
        page.wait(lambda: len(saved(page)) == 2, "nothing was saved")
        assert sorted(kind for kind, _ in saved(page)) == ["application/json", "image/png"]
        assert any('"traceEvents":[' in text for _, text in saved(page))

        place = page.text("[data-part=place]")
        page.wait(lambda: "seq=" in browser.current_url, "the address never said where this is")
        link = browser.current_url
        page.open("#" + link.split("#", 1)[1])
        page.wait(lambda: page.text("[data-part=place]") == place, f"the link didn't lead back to {place}")
        assert page.text("[data-part=event] h4") == "block copied"
        assert page.text("[data-part=status]").startswith("Paused")
        assert page.console() == []


def test_ring_is_followed_held_and_counted(browser: Chrome) -> None:
    with stack(browser) as (page, served):
        load(served, 4)
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        before = page.text("[data-part=place]")
        load(served, 4, first=4)
        page.wait(lambda: page.text("[data-part=place]") != before, "the picture doesn't follow the engine")
        page.find("body").send_keys("l")
        page.wait_text("[data-part=status]", "Paused · +")
        held, told = page.text("[data-part=place]").split(" of ")[0], page.text("[data-part=status]")
        load(served, 4, first=8)
        page.wait(lambda: page.text("[data-part=status]") != told, "nothing new is counted")
        assert page.text("[data-part=place]").split(" of ")[0] == held
        page.find("#replay-follow").click()
        page.wait_text("[data-part=status]", "Live")
        assert page.console() == []


def test_exemplar_link_opens_the_first_step_of_its_request(browser: Chrome) -> None:
    with stack(browser) as (page, served):
        trace_id = load(served, 3)[1]
        page.wait(lambda: served.get(f"/telemetry/traces/{trace_id}").status_code == 200, "the trace never came")
        detail = served.get(f"/telemetry/traces/{trace_id}").json()
        (request_id,) = detail["trace"]["request_ids"]
        page.open(f"#replay?trace_id={trace_id}")
        page.wait_text("[data-part=event] h4", "scheduled")
        page.wait_text("[data-part=event]", request_id)
        page.wait_text("[data-part=selected]", request_id)
        later = load(served, 1, first=9)[0]
        page.wait(lambda: served.get(f"/telemetry/traces/{later}").status_code == 200, "the trace never came")
        page.run(f"location.hash = '#replay?trace_id={later}'")
        (other_id,) = served.get(f"/telemetry/traces/{later}").json()["trace"]["request_ids"]
        page.wait_text("[data-part=selected]", other_id)
        page.wait_text("[data-part=event] h4", "scheduled")
        page.open("#replay?seq=5&life=gone")
        page.wait_text("[data-part=failure]", "The engine was restarted since that link was made")
        page.open("#replay?trace_id=0af7651916cd43dd8448eb211c80319c")
        page.wait_text("[data-part=failure]", "doesn’t know trace 0af7651916cd43dd8448eb211c80319c")


def test_damaged_and_hostile_files_give_one_message_and_leave_the_page_whole(browser: Chrome, tmp_path: Path) -> None:
    record_traffic(tmp_path / "good.jsonl", num_events=3_000, num_blocks=200)
    lines = (tmp_path / "good.jsonl").read_text().splitlines()
    hostile = "<img src=x onerror=alert(1)>\u202e" + "x" * 5_000
    with stack(browser) as (page, _):
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        for content, message in (
            ("not a trace", "line 1: not JSON"),
            ("\n".join([lines[0], *lines[5:40], lines[2], ""]), "`seq` must be gapless"),
        ):
            browser.execute_script(DROP, content, "broken.jsonl")  # type: ignore[no-untyped-call]
            page.wait_text("[data-part=failure]", message)
        (tmp_path / "broken.jsonl.gz").write_bytes(b"\x1f\x8bnot gzip")
        page.find("#replay-file").send_keys(str(tmp_path / "broken.jsonl.gz"))
        page.wait_text("[data-part=failure]", "isn't gzip")
        named = "\n".join(lines[:2_000]).replace("req-00001", json.dumps(hostile)[1:-1])
        browser.execute_script(DROP, named, hostile)  # type: ignore[no-untyped-call]
        page.wait_text("[data-part=status]", "File")
        page.find("[data-part=lanes] canvas").send_keys("]]p.f")
        assert not page.find("[data-part=failure]").is_displayed()
        assert page.all("#panel-replay img") == []
        assert page.console() == []


def test_two_files_stand_side_by_side_at_their_first_difference(browser: Chrome, tmp_path: Path) -> None:
    record_traffic(tmp_path / "a.jsonl", num_events=3_000, num_blocks=200)
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    place = next(at for at, line in enumerate(lines) if at > 1_500 and '"type":"tokens"' in line)
    lines[place] = lines[place].replace('"num_tokens":1', '"num_tokens":2')
    (tmp_path / "b.jsonl").write_text("\n".join(lines) + "\n")
    with stack(browser) as (page, _):
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        page.find("#replay-file").send_keys(f"{tmp_path / 'a.jsonl'}\n{tmp_path / 'b.jsonl'}")
        page.wait_text("[data-part=difference-text]", f"First difference: event {place:,} (num_tokens)")
        page.wait_text("[data-part=place]", f"seq {place:,} of")
        assert page.find("[data-part=wall-b] canvas").is_displayed()
        page.find("#replay-end-compare").click()
        assert not page.find("[data-part=wall-b]").is_displayed()
        assert page.console() == []


def test_keys_move_zoom_and_explain_themselves(browser: Chrome, tmp_path: Path) -> None:
    record_traffic(tmp_path / "run.jsonl.gz", num_events=3_000, num_blocks=200)
    with stack(browser) as (page, _):
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        page.find("#replay-file").send_keys(str(tmp_path / "run.jsonl.gz"))
        page.wait_text("[data-part=status]", "File")
        canvas = page.find("[data-part=lanes] canvas")

        def label() -> str:
            return str(canvas.get_attribute("aria-label"))

        whole = label()
        canvas.send_keys("www")
        page.wait(lambda: label() != whole, "W doesn't zoom")
        zoomed = label()
        canvas.send_keys("d")
        page.wait(lambda: label() != zoomed, "D doesn't pan")
        canvas.send_keys("ff")
        page.wait(lambda: label() == whole, "F, F doesn't show all")
        canvas.send_keys(".")
        page.wait_text("[data-part=place]", "seq 2 of")
        canvas.send_keys(",")
        page.wait_text("[data-part=place]", "seq 1 of")
        canvas.send_keys("?")
        page.wait(lambda: page.find("#replay-help").is_displayed(), "? explains nothing")
        ActionChains(browser).send_keys(Keys.ESCAPE).perform()
        page.wait(lambda: not page.find("#replay-help").is_displayed(), "Esc doesn't close the help")
        page.find("[data-part=list] .list").send_keys(Keys.END)
        page.wait_text("[data-part=place]", "seq 3,000 of 3,000")
        wall = page.find("[data-part=wall] canvas")
        wall.send_keys(Keys.ARROW_RIGHT + Keys.ENTER)
        page.wait_text("[data-part=selected] h4", "Block 1")


def test_replay_fits_every_width_is_reached_by_keyboard_and_axe_finds_nothing(browser: Chrome, tmp_path: Path) -> None:
    record_traffic(tmp_path / "run.jsonl.gz", num_events=3_000, num_blocks=200)
    with stack(browser) as (page, _):
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        page.find("#replay-file").send_keys(str(tmp_path / "run.jsonl.gz"))
        page.wait_text("[data-part=status]", "File")
        jump(page, "preemption")
        page.find("#replay-tables").click()
        page.wait(lambda: page.all("[data-part=tables] td"), "the tables are empty")
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
            page.emulate(width=width, height=1000, scheme=scheme)
            page.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert page.run(TOO_WIDE) == 0, f"too wide at {width}"
            assert page.violations() == [], f"at {width}, {scheme}"
            assert browser.save_screenshot(str(SCREENSHOTS / f"replay-file-{width}-{scheme}.png"))
        page.emulate(width=1280, height=1000)
        assert unreached_by_keyboard(page) == []
        assert page.console() == []


def test_replay_without_motion_plays_in_few_moves_and_nothing_is_animated(browser: Chrome, tmp_path: Path) -> None:
    record_traffic(tmp_path / "run.jsonl.gz", num_events=3_000, num_blocks=200)
    with stack(browser) as (page, _):
        page.open("#replay")
        page.wait_text("[data-part=status]", "Live")
        page.find("#replay-file").send_keys(str(tmp_path / "run.jsonl.gz"))
        page.wait_text("[data-part=status]", "File")
        smooth = page.browser.execute_async_script(PLAYING)  # type: ignore[no-untyped-call]
        page.emulate_calm()
        calm = page.browser.execute_async_script(PLAYING)  # type: ignore[no-untyped-call]
        assert 1 <= calm <= 4 < smooth
        assert page.run(MOVES) == []


@pytest.mark.slow
def test_hundred_thousand_events_open_in_two_seconds_and_scrub_at_thirty_frames(
    browser: Chrome, tmp_path: Path
) -> None:
    path = tmp_path / "long.jsonl"
    record_traffic(path, num_events=NUM_EVENTS)
    opened, rates = [], []
    with stack(browser) as (page, _):
        for _attempt in range(ATTEMPTS):
            page.open("#replay")
            page.wait_text("[data-part=status]", "Live")
            page.run(OPENING)
            page.find("#replay-file").send_keys(str(path))
            page.wait(lambda: page.run("return window.openedMs"), "the trace never opened", seconds=30.0)
            opened.append(float(str(page.run("return window.openedMs"))) / 1e3)
            rates.append(float(browser.execute_async_script(SCRUBBING)))  # type: ignore[no-untyped-call]
            if opened[-1] < MAX_OPEN_S and rates[-1] >= MIN_FPS:
                break
        assert page.console() == []
    (tmp_path / "measured.json").write_text(json.dumps({"open_s": opened, "frames_per_s": rates}))
    assert min(opened) < MAX_OPEN_S, opened
    assert max(rates) >= MIN_FPS, rates
