"""The Requests tab in a real browser: finding a request, and reading why it took so long."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from dashboard.server import create_app
from tests.browser.conftest import Page
from tests.support.loopback import serving
from tests.support.stub_service import Stub


@pytest.fixture(scope="module")
def watched(browser: Chrome) -> Iterator[Page]:
    stub = Stub(rate=3.0, past_s=40.0)
    with serving(stub.app()) as service_url, serving(create_app(service_url, poll_interval_s=0.5)) as url:
        yield Page(browser, url, stub)
        browser.get("about:blank")


@pytest.fixture
def requests(watched: Page) -> Page:
    """The tab, with rows."""
    watched.emulate()
    watched.stub.telemetry.hostile = False
    watched.console()
    watched.open("#requests")
    watched.wait(lambda: len(watched.all("table.rows tbody tr")) > 20, "no rows")
    return watched


def cells(page: Page, column: int) -> list[str]:
    found = page.run(
        f"return [...document.querySelectorAll('table.rows tbody tr')].map((row) => row.cells[{column}].textContent)"
    )
    assert isinstance(found, list)
    return found


def ended_id(page: Page) -> str:
    """Show ended requests alone, as at times more are in flight than the table has rows; return the newest one's id."""
    page.open("#requests?show=ended")
    row = page.stub.telemetry.newest_ended()
    page.wait(lambda: page.all(f"tr[data-id='{row}']"), f"{row} is not shown")
    return row


def test_request_opens_beside_the_table_and_its_shares_are_a_hundred_percent(requests: Page) -> None:
    request_id = ended_id(requests)
    requests.find(f"tr[data-id='{request_id}'] .open").click()
    requests.wait(lambda: requests.all("table.causes tbody tr"), "no attribution")
    shares = requests.run(
        "return [...document.querySelectorAll('table.causes tbody td:last-child')]"
        ".map((td) => parseFloat(td.textContent))"
    )
    assert isinstance(shares, list)
    assert round(sum(shares), 1) == 100.0
    assert {"queued", "prefill 1", "decode"} <= {item.text for item in requests.all(".waterfall .name")}
    assert f"id={request_id}" in requests.browser.current_url
    assert "TTFT" in requests.text("[data-badge=ttft]")
    assert requests.violations() == []
    requests.browser.refresh()
    requests.wait_text("#request-title", request_id)
    requests.find("#request-close").click()
    assert "id=" not in requests.browser.current_url
    assert requests.console() == []


def test_trace_id_in_the_url_opens_its_request(requests: Page) -> None:
    request_id = ended_id(requests)
    trace_id = f"{int(request_id.removeprefix('req-')):032x}"
    requests.open(f"#requests?trace_id={trace_id}")
    requests.wait_text("#request-title", request_id)


def test_table_is_sorted_and_filtered_and_the_url_says_how(requests: Page) -> None:
    requests.find("th[data-field=num_output_tokens] button").click()
    outputs = [int(text.replace(",", "")) for text in cells(requests, 4)]
    assert outputs == sorted(outputs, reverse=True)
    assert requests.find("th[data-field=num_output_tokens]").get_attribute("aria-sort") == "descending"
    requests.find("#request-query").send_keys("req-00007")
    requests.wait(lambda: len(requests.all("table.rows tbody tr")) == 1, "not filtered")
    assert "q=req-00007" in requests.browser.current_url
    assert "sort=-num_output_tokens" in requests.browser.current_url
    requests.browser.refresh()
    requests.wait(lambda: len(requests.all("table.rows tbody tr")) == 1, "the filter is not in the URL")


def test_arrow_keys_go_through_rows_and_enter_opens_one(requests: Page) -> None:
    requests.find("#request-show").send_keys("ended")
    requests.wait(lambda: "show=ended" in requests.browser.current_url, "not chosen")
    requests.run("document.querySelector('table.rows .open[tabindex=\"0\"]').focus()")
    ActionChains(requests.browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER).perform()
    requests.wait(lambda: requests.all("table.causes"), "not opened")
    assert requests.run("return document.activeElement.id") == "request-title"
    ActionChains(requests.browser).send_keys(Keys.ESCAPE).perform()
    assert not requests.find("#request-detail").is_displayed()
    assert requests.run("return document.activeElement.className.includes('open')") is True


def test_points_of_the_scatter_open_their_requests(requests: Page) -> None:
    canvas = requests.find(".scatter canvas")
    canvas.send_keys(Keys.ARROW_LEFT)
    label = canvas.get_attribute("aria-label") or ""
    assert label.startswith("req-")
    canvas.send_keys(Keys.ENTER)
    requests.wait_text("#request-title", label.split(":")[0])


def test_request_in_flight_is_cancelled_by_its_button(requests: Page) -> None:
    requests.open("#requests?show=in_flight")
    requests.wait(lambda: requests.all(".cancel"), "nothing is in flight")
    requests.run("document.querySelector('.cancel').click()")
    requests.wait(lambda: requests.stub.telemetry.cancelled, "nothing was cancelled")
    requests.wait_text("#request-status", "is being cancelled")


def test_hostile_text_around_a_divergence_is_inert(requests: Page) -> None:
    requests.stub.telemetry.hostile = True
    requests.open(f"#requests?id={ended_id(requests)}")
    requests.wait(lambda: requests.all(".divergence ins"), "no divergence")
    assert requests.all("#request-detail img, #request-detail script, #request-detail b, #request-detail i") == []
    assert "<script>alert(1)</script>" in requests.text(".divergence")
    assert requests.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert requests.console() == []
