"""Each tab's main journey over the whole stack with the real model: service, engine and dashboard in their processes.

What the stand-in service can't show: that the numbers, the pictures and the words of every tab fit what really happens.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import SCREENSHOTS, Page
from tests.support.dashboard_process import dashboard_process
from tests.support.serve_process import ServeProcess, engine_pid
from tests.support.stub_service import Stub

pytestmark = [pytest.mark.model, pytest.mark.slow]

MAX_MODEL_LEN = 1024
SYSTEM = "You answer questions about glass, shortly and only with what is known for certain. "
BAR_GAP = """
const bar = document.querySelector(".attribution");
return bar.getBoundingClientRect().right - bar.lastElementChild.getBoundingClientRect().right;
"""
HERE_S = 30.0  # what a shared machine may take for what is quick


@dataclass(frozen=True)
class Stack:
    """The processes, and where recordings go."""

    service: ServeProcess
    dashboard: subprocess.Popen[str]
    url: str
    trace_dir: Path

    def complete(self, prompt: str, *, max_tokens: int) -> httpx.Response:
        """Ask for exactly so many tokens and wait for them."""
        body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
        return httpx.post(f"{self.service.url}/v1/completions", json=body, timeout=60.0, trust_env=False)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Post through the dashboard, as its page does."""
        answer = httpx.post(self.url + path, json=body, timeout=60.0, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    traces = tmp_path_factory.mktemp("traces")
    flags = ("--max-model-len", str(MAX_MODEL_LEN), "--threads", "1", "--log-content", "--trace-dir", str(traces))
    service = ServeProcess(*flags)
    try:
        service.wait_ready()
        with dashboard_process("--service-url", service.url) as (dashboard, url):
            yield Stack(service, dashboard, url, traces)
    finally:
        service.close()


@pytest.fixture
def page(browser: Chrome, stack: Stack) -> Iterator[Page]:
    page = Page(browser, stack.url, Stub(rate=0.0, past_s=1.0))
    page.emulate(width=1280, height=1000)
    page.console()
    yield page
    browser.get("about:blank")


def leave(page: Page, tab: str) -> None:
    """Keep a picture of what the journey came to; nothing may have gone wrong on the way."""
    assert page.browser.save_screenshot(str(SCREENSHOTS / f"real-{tab}.png"))
    assert page.console() == []


def ask(page: Page, text: str) -> None:
    """Begin a conversation in the Playground and wait for a short answer with its tokens' probabilities."""
    page.open("#playground")
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived", HERE_S)
    page.wait(lambda: page.find("#max_tokens").is_displayed(), "no form")
    page.find("#max_tokens").clear()
    page.find("#max_tokens").send_keys("12")
    page.find("#want-tokens").click()
    page.find("#prompt").send_keys(text + Keys.ENTER)
    page.wait(lambda: page.all(".metrics"), "the answer never ended", HERE_S)


def test_live_shows_a_request_while_it_runs_and_the_past_of_the_engine(page: Page, stack: Stack) -> None:
    page.open("#live")
    page.wait_text("[data-field=state]", "Ready", HERE_S)
    page.wait_text("[data-field=model]", "smollm2-135m-instruct")
    page.wait_text("[data-field=outputNote]", " in all")
    before = int(page.text("[data-field=outputNote]").removesuffix(" in all").replace(",", ""))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(stack.complete, SYSTEM, max_tokens=300)
        page.wait(lambda: page.text("[data-field=running]") == "1", "the request is not shown", HERE_S)
        page.wait(lambda: page.text("[data-field=output]") not in ("", "–", "0"), "no tokens per second", HERE_S)
        assert answer.result().json()["usage"]["completion_tokens"] == 300
    page.wait(lambda: page.text("[data-field=running]") == "0", "the request never left")
    page.wait_text("[data-field=outputNote]", f"{before + 300:,} in all")
    page.find("[data-chart=throughput] .as-table").click()
    rows = page.all("[data-chart=throughput] .chart-table tbody td")
    assert any(row.text not in ("", "–", "0") for row in rows)
    leave(page, "live")


def test_answer_is_taken_apart_followed_to_its_waterfall_and_raced(page: Page) -> None:
    for text in ("Why is glass transparent to light?", "Why is glass brittle in the cold?"):
        ask(page, text)
    numbers = {item.text.split("\n")[0]: item.text.split("\n")[-1] for item in page.all(".metrics div")}
    assert 1 <= int(numbers["tokens"]) <= 12
    assert numbers["queue"].endswith("ms")
    page.run("document.querySelector('[data-view=tokens]').click()")
    assert len(page.all(".tokens .token")) == int(numbers["tokens"])
    assert len(page.all(".alternatives li")) >= 5
    leave(page, "playground")
    links = {
        str(link.get_attribute("href")).split("#")[1].split("?")[0]: link for link in page.all(".message .links a")
    }
    assert list(links) == ["requests", "replay"]
    links["requests"].click()
    page.wait(lambda: page.all(".divergence ins"), "the text around the divergence is not shown", HERE_S)
    assert "glass" in page.text(".divergence")
    assert {"tokenize", "prefill 1", "decode"} <= {item.text for item in page.all(".waterfall .name")}
    assert page.text("table.causes tfoot td:last-child") == "100.0 %"
    assert abs(float(str(page.run(BAR_GAP)))) < 2, "the causes don't fill their bar"
    leave(page, "requests")

    page.open("#playground")
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived", HERE_S)
    page.find("[data-mode=race]").click()
    page.find("#race-lanes").send_keys("2")
    page.find("#race-start").click()
    page.wait_text("#race-verdict", "2 requests together make", 60.0)
    assert page.console() == []


def test_request_in_flight_is_cancelled_and_its_client_hears_of_it(page: Page, stack: Stack) -> None:
    page.open("#requests?show=in_flight")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(stack.complete, "Once upon a time", max_tokens=MAX_MODEL_LEN - 100)
        page.wait(lambda: page.all(".cancel"), "nothing is in flight", HERE_S)
        page.run("document.querySelector('.cancel').click()")
        page.wait_text("#request-status", "is being cancelled")
        told = answer.result()
    assert (told.status_code, told.json()["error"]["type"]) == (409, "request_cancelled")
    page.wait(lambda: not page.all(".cancel"), "it is in flight for ever", HERE_S)
    page.open("#requests?show=problems")
    page.wait_text("table.rows tbody", "abort", HERE_S)
    assert page.console() == []


def test_recording_is_made_and_replayed(page: Page, stack: Stack) -> None:
    assert stack.post("/api/telemetry/kv/recording", {"action": "start"})["state"] == "recording"
    with ThreadPoolExecutor(4) as pool:
        prompts = [SYSTEM * 3 + f"Question {number}: what is glass made of?" for number in range(4)]
        list(pool.map(lambda prompt: stack.complete(prompt, max_tokens=12), prompts))
    stopped = stack.post("/api/telemetry/kv/recording", {"action": "stop"})
    (file,) = stopped["files"]
    page.open("#replay")
    page.wait_text("[data-part=status]", "Live", HERE_S)
    page.find("#replay-file").send_keys(str(stack.trace_dir / file["name"]))
    page.wait_text("[data-part=status]", "File", HERE_S)
    page.wait_text("[data-part=name]", f"{file['num_events']:,} events")
    page.find("[data-jump=step][aria-label='Next step']").click()
    page.wait_text("[data-part=event] h4", "step started")
    page.find("[data-part=list] .list").send_keys(Keys.END)
    page.wait_text("[data-part=place]", f"seq {file['last_seq']:,} of")
    tree = page.find("[data-part=tree] canvas")
    tree.send_keys(Keys.HOME + Keys.ARROW_RIGHT)
    page.wait(lambda: "Block" in str(tree.get_attribute("aria-label")), "arrow keys don't reach the tree's blocks")
    tree.send_keys(Keys.ENTER)
    page.wait_text("[data-part=selected] h4", "Block")
    page.find("#replay-tables").click()
    page.wait(lambda: page.all("[data-part=tables] td"), "the tables are empty")
    page.find("#replay-tables").click()
    leave(page, "replay")


def test_load_of_ten_seconds_has_figures_and_charts_that_are_tables_too(page: Page) -> None:
    page.open("#load")
    page.wait(lambda: page.all("#load-model option"), "the model never arrived", HERE_S)
    wanted = {"duration-s": "10", "warm-up-s": "0.5", "concurrency": "2", "prompt-a": "32", "output-a": "8"}
    for name, value in wanted.items():
        page.run(f"document.querySelector('#load-{name}').value = '{value}'")
    page.find("#load-start").click()
    page.wait_text("#load-line", "in flight", HERE_S)
    page.wait(lambda: page.all(".figures"), "the load never ended", 60.0)
    answered, errors = (row.find_element("css selector", "td").text for row in page.all(".figures tbody tr")[1:3])
    assert int(answered) > 5
    assert errors.startswith("0 + 0")
    for figure in page.all("[data-load-chart]"):
        figure.find_element("css selector", ".as-table").click()
        assert len(figure.find_elements("css selector", ".chart-table tbody tr")) >= 8, figure.text
    assert page.violations("#load-now") == []
    leave(page, "load")


def test_stats_metrics_and_config_tell_of_this_server(page: Page, stack: Stack) -> None:
    page.open("#stats")
    page.wait(lambda: page.text("[data-stat='counters.generated_tokens']") not in ("", "–"), "no numbers", HERE_S)
    before = int(page.text("[data-stat='counters.generated_tokens']").replace(",", ""))
    stack.complete("Glass", max_tokens=5)
    page.wait_text("[data-stat='counters.generated_tokens']", f"{before + 5:,}")
    leave(page, "stats")

    page.open("#metrics?q=generated_tokens_total")
    page.wait_text("#metric-count", "1 of ", HERE_S)
    page.wait_text("#metric-list li:not([hidden])", f"{before + 5:,}")
    leave(page, "metrics")

    page.open("#config?changed=1")
    page.wait_text("#config-rows", "--max-model-len", HERE_S)
    (row,) = [row.text for row in page.all("#config-rows tr.changed") if "--max-model-len" in row.text]
    assert str(MAX_MODEL_LEN) in row
    assert "command line" in row
    leave(page, "config")


def test_kernels_are_measured_beside_the_server(page: Page) -> None:
    page.open("#kernels")
    page.wait(lambda: page.find("#kernels-report").is_displayed(), "no report", 120.0)
    assert "ctypes" in page.text("#kernels-timings")
    badges = {badge.text for badge in page.all("#kernels-checks .badge")}
    assert badges
    assert all(text.split(" of ")[0] == text.split(" of ")[1] for text in badges), badges
    leave(page, "kernels")


def test_silent_dashboard_is_stale_and_a_killed_engine_comes_back_without_a_reload(page: Page, stack: Stack) -> None:
    page.open("#live")
    page.wait_text("[data-field=state]", "Ready", HERE_S)
    page.run("window.sameDocument = true")
    os.kill(stack.dashboard.pid, signal.SIGSTOP)
    try:
        page.wait_text("[data-field=link]", "stale")
        page.wait_text("#banner", "No news for more than three seconds")
        assert page.run("return document.body.classList.contains('outdated')") is True
    finally:
        os.kill(stack.dashboard.pid, signal.SIGCONT)
    page.wait_text("[data-field=link]", "live", HERE_S)
    page.wait(lambda: not page.find("#banner").is_displayed(), "the banner never went away")

    os.kill(engine_pid(stack.service), signal.SIGKILL)
    page.wait(lambda: page.text("[data-field=state]") != "Ready", "nobody noticed")
    page.wait(lambda: page.find("#banner").is_displayed(), "no banner")
    page.wait_text("[data-field=state]", "Ready", 60.0)
    page.wait(lambda: not page.find("#banner").is_displayed(), "the banner never went away")
    assert page.run("return window.sameDocument") is True
    page.run("location.hash = '#stats'")
    page.wait_text("[data-stat='engine.restarts']", "1")
    assert stack.complete("Glass", max_tokens=2).status_code == 200
    assert page.console() == []
