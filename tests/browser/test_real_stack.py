"""The page over a real service with a real engine process: a request from the Playground to its waterfall, a killed
engine, and what the page itself costs."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from dashboard.server import create_app
from tests.browser.conftest import Page
from tests.support.loopback import serving
from tests.support.serve_process import ServeProcess
from tests.support.stub_service import Stub

FLAGS = ("--model", "random:tiny", "--threads", "1", "--block-size", "8", "--num-kv-blocks", "96", "--log-content")
MAX_CORE_SHARE = 0.10
MEASURED_S = 8.0


@pytest.fixture(scope="module")
def served() -> Iterator[ServeProcess]:
    process = ServeProcess(*FLAGS)
    try:
        process.wait_ready()
        yield process
    finally:
        process.close()


@pytest.fixture
def real(browser: Chrome, served: ServeProcess, stub: Stub) -> Iterator[Page]:
    with serving(create_app(served.url, poll_interval_s=0.2)) as url:
        page = Page(browser, url, stub)
        page.emulate()
        page.console()
        yield page
        browser.get("about:blank")


def ask(page: Page, text: str) -> None:
    page.open("#playground")
    page.wait(lambda: page.text("[data-field=model]") not in ("", "no model yet"), "the model never arrived")
    page.wait(lambda: page.find("#max_tokens").is_displayed(), "no form")
    field = page.find("#max_tokens")
    field.clear()
    field.send_keys("24")
    page.find("#prompt").send_keys(text + Keys.ENTER)


def test_request_is_followed_from_the_playground_to_its_waterfall_and_divergence(real: Page) -> None:
    for text in ("Why is glass transparent to light?", "Why is glass brittle in the cold?"):
        ask(real, text)
        real.wait(lambda: real.all(".metrics"), "the answer never ended")
    real.open("#requests?sort=-arrival")
    real.wait(lambda: len(real.all("table.rows tbody tr")) == 2, "the requests are not in the table")
    real.find("table.rows tbody .open").click()
    real.wait(lambda: real.all(".divergence ins"), "the text around the divergence is not shown")
    assert "glass" in real.text(".divergence")
    assert {"tokenize", "prefill 1", "decode"} <= {item.text for item in real.all(".waterfall .name")}
    assert real.text("table.causes tfoot td:last-child") == "100.0 %"
    assert real.console() == []


def test_killed_engine_is_announced_and_the_page_recovers_without_a_reload(real: Page, served: ServeProcess) -> None:
    real.open("#live")
    real.wait_text("[data-field=state]", "Ready")
    real.run("window.sameDocument = true")
    os.kill(engine_pid(served), signal.SIGKILL)
    real.wait(lambda: real.text("[data-field=state]") != "Ready", "nobody noticed")
    real.wait(lambda: real.find("#banner").is_displayed(), "no banner")
    real.wait(lambda: real.text("[data-field=state]") == "Ready", "never ready again", seconds=30.0)
    real.wait(lambda: not real.find("#banner").is_displayed(), "the banner never went away")
    real.open("#stats")
    real.wait(lambda: real.text("[data-stat='engine.restarts']") == "1", "the restart is not told")


def test_live_costs_less_than_a_tenth_of_a_core_at_one_frame_a_second(browser: Chrome) -> None:
    stub = Stub(rate=3.0, past_s=320.0)
    with serving(stub.app()) as service_url, serving(create_app(service_url, poll_interval_s=1.0)) as url:
        page = Page(browser, url, stub)
        page.emulate(width=1280, height=2600)  # everything visible
        page.open("#live")
        page.wait(lambda: page.text("[data-chart=kv] .value") not in ("", "–"), "the KV chart never got a row")
        page.run("return new Promise((done) => setTimeout(done, 2000))")
        before, started = browser_cpu_s(browser), time.monotonic()
        page.run(f"return new Promise((done) => setTimeout(done, {MEASURED_S * 1000}))")
        share = (browser_cpu_s(browser) - before) / (time.monotonic() - started)
        browser.get("about:blank")
    assert share < MAX_CORE_SHARE, f"{share:.1%} of a core"


def browser_cpu_s(browser: Chrome) -> float:
    """Return the CPU seconds of all of Chromium's processes."""
    driver = browser.service.process.pid  # type: ignore[attr-defined]
    ticks = sum(_ticks(pid) for pid in _descendants(driver))
    return ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in _descendants(child))]


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def engine_pid(served: ServeProcess) -> int:
    """Return the child of the service that runs the engine."""
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    engines = [int(pid) for pid in children if b"engine" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(engines) == 1, children
    return engines[0]
