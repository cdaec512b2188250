"""Stats, Kernels, Raw metrics and Config in a real browser, and Live's ways to look at the past."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Page


def test_stats_are_the_newest_and_explained(page: Page) -> None:
    page.open("#stats")
    page.wait(lambda: page.text("[data-stat='counters.generated_tokens']") not in ("", "–"), "no numbers")
    before = page.text("[data-stat='counters.generated_tokens']")
    page.wait(lambda: page.text("[data-stat='counters.generated_tokens']") != before, "the numbers stand still")
    assert "undefined" not in page.text("#panel-stats")
    assert "NaN" not in page.text("#panel-stats")


def test_kernels_are_measured_and_then_shown_with_errors_and_call_costs(page: Page) -> None:
    page.open("#kernels")
    page.wait_text("#kernels-progress", "Measuring: checking")
    page.wait(lambda: page.find("#kernels-report").is_displayed(), "no report")
    assert "×2.37" in page.text("#kernels-timings")
    assert "no CUDA device" in page.text("#kernels-backends")
    assert "210 ns" in page.text("#kernels-costs")
    assert page.text("#kernels-checks .badge") == "1 of 1"
    assert page.console() == []


def test_metrics_are_searched_and_unfolded(page: Page) -> None:
    page.open("#metrics?q=first_token_seconds")
    page.wait_text("#metric-count", "1 of ")
    page.find("#metric-list li:not([hidden]) summary").click()
    page.wait_text("#metric-list li:not([hidden]) .samples", "pellucid_time_to_first_token_seconds_bucket")
    assert "p50" in page.text("#metric-list li:not([hidden]) .samples .note")
    page.find("#metric-query").clear()
    page.find("#metric-query").send_keys("kv evictions")
    page.wait_text("#metric-count", "1 of ")
    assert "q=kv+evictions" in page.browser.current_url


def test_config_says_what_was_set_and_by_whom(page: Page) -> None:
    page.open("#config")
    page.wait_text("#config-count", "2 of 2")
    assert "command line" in page.text("#config-rows tr.changed")
    page.find("#config-changed").click()
    assert page.text("#config-count") == "1 of 2 settings"
    assert "changed=1" in page.browser.current_url


def test_live_zooms_into_a_dragged_range_and_the_url_keeps_it(page: Page) -> None:
    page.open("#live?range=60")
    page.wait(lambda: page.text("[data-chart=kv] .value") not in ("", "–"), "the KV chart never got a row")
    canvas = page.find("[data-chart=throughput] canvas")
    ActionChains(page.browser).move_to_element_with_offset(canvas, 40, 0).click_and_hold().move_by_offset(
        120, 0
    ).release().perform()
    page.wait_text("#mode", "Range")
    assert "from=" in page.browser.current_url
    shown = page.text("#mode")
    page.browser.refresh()
    page.wait_text("#mode", shown)
    page.find("body").send_keys("-")
    assert page.text("#mode") != shown
    ActionChains(page.browser).send_keys(Keys.ESCAPE).perform()
    page.wait_text("#mode", "Live")
    assert page.browser.current_url.endswith("#live?range=60")


def test_live_names_the_alert_that_a_silent_service_leads_to(page: Page) -> None:
    page.open("#live")
    page.wait_text("#alert-count", "none would fire")
    page.stub.broken = True
    page.wait_text("#alert-list", "PellucidScrapeDown")
    assert "pending" in page.text("#alert-list .badge")
    page.stub.broken = False
    page.wait_text("#alert-count", "none would fire")
