"""The Load tab in a real browser: a load from the form to its figures, stopped, compared, and two servers in turns."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from dashboard.server import create_app
from dashboard.targets import Target
from tests.browser.conftest import Page
from tests.support.loopback import serving
from tests.support.stub_service import Stub


@pytest.fixture
def page(browser: Chrome, stub: Stub) -> Iterator[Page]:
    """A dashboard whose list has the stand-in a second time, as `other`."""
    with (
        serving(stub.app()) as service_url,
        serving(create_app(service_url, targets=(Target("other", service_url),), poll_interval_s=0.2)) as url,
    ):
        page = Page(browser, url, stub)
        page.emulate()
        page.console()
        yield page
        browser.get("about:blank")


def opened(page: Page, **values: str) -> Page:
    """Open the tab and fill in the form."""
    page.open("#load")
    page.wait(lambda: page.all("#load-model option"), "the model never arrived")
    return fill(page, **values)


def fill(page: Page, **values: str) -> Page:
    script = (
        "for (const [name, value] of Object.entries(JSON.parse(arguments[0]))) {"
        " const input = document.getElementById(`load-${name.replaceAll('_', '-')}`);"
        " input.value = value; input.dispatchEvent(new Event('change', {bubbles: true})); }"
    )
    page.browser.execute_script(script, json.dumps(values))  # type: ignore[no-untyped-call]
    return page


def start(page: Page) -> None:
    page.run("document.querySelector('#load-start').click()")


def states(page: Page) -> object:
    return page.run(
        "return [...document.querySelectorAll('.runs tbody [data-state]')].map((cell) => cell.dataset.state)"
    )


def figure(page: Page, name: str) -> list[str]:
    rows = page.all(".figures tbody tr")
    return next(
        [cell.text for cell in row.find_elements("css selector", "td")] for row in rows if row.text.startswith(name)
    )


def test_load_of_three_seconds_goes_from_the_form_to_figures_with_a_clean_console(page: Page) -> None:
    opened(page, concurrency="4", duration_s="3", warm_up_s="0.5", output_a="6")
    start(page)
    page.wait_text("#load-line", "in flight")
    page.wait(lambda: page.find("#load-stop").is_displayed(), "a load that runs can't be stopped")
    page.wait(lambda: "4 streams" in page.text("#load-line"), "nothing is shown while it runs")
    page.wait(lambda: states(page) == ["done"], "the load never ended", 20.0)
    page.wait(lambda: page.all(".figures"), "there are no figures")
    assert int(figure(page, "answered")[0]) > 10
    assert figure(page, "output")[0].endswith("tok/s")
    assert figure(page, "p50")[0].endswith("ms")
    assert "%" in figure(page, "attainment")[0]
    painted = page.run(
        "return [...document.querySelectorAll('[data-load-chart] canvas')].map((c) =>"
        " c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((byte) => byte !== 0))"
    )
    assert painted == [True] * 4
    assert not page.find("#load-stop").is_displayed()
    exports = page.run("return [...document.querySelectorAll('.row-actions a')].map((a) => a.getAttribute('href'))")
    assert exports == ["api/load/runs/load-1/export.json", "api/load/runs/load-1/export.csv"]
    assert page.console() == []


def test_load_is_stopped_started_anew_and_forgotten(page: Page) -> None:
    opened(page, duration_s="60", warm_up_s="0")
    start(page)
    page.wait_text("#load-line", "8 in flight")
    start(page)
    page.wait(lambda: states(page) == ["running", "stopped"], "the first load was not stopped")
    page.wait(lambda: page.find("#load-stop").is_displayed(), "the second load can't be stopped")
    page.find("#load-stop").click()
    page.wait(lambda: states(page) == ["stopped", "stopped"], "the second load was not stopped")
    page.find("#forget-load-2").click()
    page.wait(lambda: states(page) == ["stopped"], "the load was not forgotten")
    assert page.console() == []


def test_load_after_a_reload_of_the_page_is_shown_on(page: Page) -> None:
    opened(page, duration_s="60", warm_up_s="0")
    start(page)
    page.wait_text("#load-line", "8 in flight")
    page.open("#load")
    page.wait_text("#load-now-title", "Running: load-1")
    page.wait_text("#load-line", "8 in flight")
    page.find("#load-stop").click()
    page.wait(lambda: states(page) == ["stopped"], "the load was not stopped")


def test_sweep_shows_a_column_for_each_level_and_its_curve(page: Page) -> None:
    opened(page, kind="sweep", levels="1, 2, 4", duration_s="0.5", warm_up_s="0", output_a="4")
    start(page)
    page.wait(lambda: states(page) == ["done"], "the sweep never ended", 20.0)
    page.wait(lambda: page.all("svg.sweep"), "there is no curve")
    heads = [head.text.split("\n")[-1] for head in page.all(".figures thead th")]
    assert heads == ["service · 1 stream", "service · 2 streams", "service · 4 streams"]
    assert "knee" in page.text("#load-results").lower()
    assert page.console() == []


def test_two_servers_in_turns_are_compared_round_by_round(page: Page) -> None:
    opened(page, other="other", rounds="2", kind="poisson", rate="10", duration_s="0.8", warm_up_s="0", output_a="4")
    start(page)
    page.wait(lambda: states(page) == ["done"], "the loads never ended", 20.0)
    page.wait(lambda: len(page.all(".figures")) == 2, "there is no comparison")
    heads = [head.text for head in page.all(".figures thead th")][:3]
    assert heads == ["A: service", "B: other", "verdict"]
    assert len(page.find(".figures tbody td").text.split(", ")) == 2
    assert page.console() == []


def test_trace_that_is_dropped_is_replayed(page: Page, tmp_path: Path) -> None:
    trace = tmp_path / "small.jsonl"
    lines = [{"timestamp": 50 * i, "input_length": 20, "output_length": 3} for i in range(5)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    opened(page, kind="replay")
    page.find("#load-file").send_keys(str(trace))
    page.wait_text("#load-drop", "small.jsonl: 5 requests")
    fill(page, warm_up_s="0")
    start(page)
    page.wait(lambda: states(page) == ["done"], "the replay never ended", 20.0)
    page.wait(lambda: page.all(".figures"), "there are no figures")
    assert figure(page, "answered") == ["5"]
    assert page.console() == []


def test_form_that_is_wrong_says_why(page: Page) -> None:
    opened(page, duration_s="", num_requests="")
    start(page)
    page.wait_text("#load-problem", "one of `duration_s` and `num_requests` must be greater than 0")
    assert states(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_load_fits_its_width_and_axe_finds_nothing(page: Page, width: int, scheme: str, tmp_path: Path) -> None:
    page.emulate(width=width, scheme=scheme)
    opened(
        page, kind="sweep", levels="1, 2, 4", duration_s="0.4", warm_up_s="0", output_a="3", other="other", rounds="1"
    )
    page.run("document.querySelector('#load-form details').open = true")
    start(page)
    page.wait(lambda: states(page) == ["done"], "the sweep never ended", 20.0)
    page.wait(lambda: page.all("svg.sweep"), "there is no curve")
    assert page.violations() == []
    overflow = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow == 0
    page.browser.save_screenshot(str(tmp_path / "load.png"))
