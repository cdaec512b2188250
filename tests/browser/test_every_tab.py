"""What holds for every tab: accessible, reachable by keyboard, as wide as the window, quiet in the console."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from dashboard.server import HERE, create_app
from dashboard.tabs import Tab, built_tabs
from tests.browser.conftest import MOVES, SCREENSHOTS, TOO_WIDE, Page
from tests.browser.keyboard import unreached_by_keyboard
from tests.support.loopback import serving
from tests.support.stub_service import Stub

TABS = built_tabs(HERE / "templates")
FEW = {"requests": "?q=req-0000"}  # axe-core looks at every cell of a table for a while

FAULTS = """
const panel = document.getElementById("panel-config");
panel.insertAdjacentHTML("beforeend", `<button tabindex="-1" id="unreachable"></button>
  <img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><p id="pale">Who can read this?</p>
  <p id="animated">moves</p>`);
panel.insertAdjacentHTML("beforeend", `<div id="wide">wide</div>`);
document.getElementById("wide").style.width = "2000px";
document.getElementById("pale").style.color = "#ddd";
document.getElementById("animated").style.transition = "opacity 1s";
"""


@pytest.fixture(scope="module")
def watched(browser: Chrome) -> Iterator[Page]:
    """One busy service and one dashboard for all tabs."""
    stub = Stub(rate=2.0, past_s=15.0)
    with serving(stub.app()) as service_url, serving(create_app(service_url, poll_interval_s=0.5)) as url:
        yield Page(browser, url, stub)
        browser.get("about:blank")


@pytest.fixture(scope="module", params=TABS, ids=lambda tab: tab.name)
def tab(watched: Page, request: pytest.FixtureRequest) -> Tab:
    """A tab, open, with its first news."""
    tab: Tab = request.param
    watched.emulate()
    watched.console()
    watched.open(f"#{tab.name}{FEW.get(tab.name, '')}")
    watched.wait_text("[data-field=state]", "Ready")
    watched.wait(lambda: watched.find(f"#panel-{tab.name}").text.strip() != "", f"{tab.name} stays empty")
    watched.wait(lambda: watched.run("return performance.now() > 1500"), "time stands still")
    return tab


def test_tab_is_accessible_and_fits_in_both_schemes_and_widths(watched: Page, tab: Tab) -> None:
    for width, height in ((1280, 900), (390, 844)):
        for scheme in ("light", "dark"):
            watched.emulate(width=width, height=height, scheme=scheme)
            watched.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert watched.browser.save_screenshot(str(SCREENSHOTS / f"{tab.name}-{width}-{scheme}.png"))
            assert watched.run(TOO_WIDE) == 0, f"too wide at {width}"
            if (width, scheme) != (390, "dark"):  # what the widths and the schemes differ in is seen by then
                assert watched.violations() == [], f"at {width}, {scheme}"
    assert watched.console() == []


def test_keyboard_alone_reaches_everything(watched: Page, tab: Tab) -> None:
    watched.emulate()
    assert unreached_by_keyboard(watched) == []


def test_nothing_moves_for_those_who_asked_for_that(watched: Page, tab: Tab) -> None:
    watched.emulate_calm()
    assert watched.run(MOVES) == []


def test_charts_of_live_can_be_read_as_tables(watched: Page) -> None:
    watched.emulate()
    watched.open("#live")
    watched.wait(lambda: watched.text("[data-chart=kv] .value") not in ("", "–"), "the KV chart never got a row")
    figures = watched.all("figure[data-chart]")
    assert len(figures) >= 8
    for figure in figures:
        button = figure.find_element("css selector", ".as-table")
        button.click()
        assert button.get_attribute("aria-expanded") == "true"
        assert len(figure.find_elements("css selector", ".chart-table tbody tr")) > 5, figure.text
    assert watched.violations("figure[data-chart=time]") == []


def test_checks_of_every_tab_find_what_is_wrong(watched: Page) -> None:
    """Put one fault of each kind into a page that has none: a check that can't fail proves nothing."""
    watched.emulate(width=390, height=844)
    watched.open("#config")
    watched.wait(lambda: watched.find("#panel-config").text.strip() != "", "config stays empty")
    assert watched.violations("#panel-config") == []
    watched.run(FAULTS)
    rules = {finding.split(":")[0] for finding in watched.violations("#panel-config")}
    assert {"button-name", "color-contrast", "image-alt"} <= rules
    assert int(str(watched.run(TOO_WIDE))) > 0
    assert any("animated" in found for found in as_list(watched.run(MOVES)))
    assert ["unreachable" in found for found in unreached_by_keyboard(watched)] == [True]


def as_list(found: object) -> list[str]:
    assert isinstance(found, list)
    return found
