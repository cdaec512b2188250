"""The page in a real browser: each tab's main journey, with a clean console."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from dashboard.server import create_app
from tests.browser.conftest import Page
from tests.support.loopback import serving
from tests.support.stub_service import ANSWER, Stub


def ask(page: Page, prompt: str) -> None:
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived")
    page.find("#prompt").send_keys(prompt + Keys.ENTER)


def test_live_shows_numbers_that_change_with_a_clean_console_and_nothing_from_elsewhere(page: Page) -> None:
    page.open()
    page.wait_text("[data-field=state]", "Ready")
    assert page.text("[data-field=model]") == "SmolLM2-135M-Instruct"
    assert page.text("[data-field=output]") not in ("", "–", "0")
    assert "requests in 60 s" in page.text("[data-field=ttftNote]")
    before = page.text("[data-field=outputNote]")
    page.wait(lambda: page.text("[data-field=outputNote]") != before, "the token count never changed")
    assert page.text("[data-chart=throughput] .value") not in ("", "–")
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert isinstance(loaded, list)
    assert len(loaded) > 10
    assert [name for name in loaded if not name.startswith(page.url)] == []
    assert page.console() == []


def test_charts_draw_and_share_one_cursor(page: Page) -> None:
    page.open()
    page.wait_text("[data-field=state]", "Ready")
    page.wait(lambda: page.text("[data-chart=kv] .value") not in ("", "–"), "the KV chart never got a row")
    for canvas in range(6):
        painted = page.run(
            f"const c = document.querySelectorAll('canvas')[{canvas}];"
            "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((byte) => byte !== 0)"
        )
        assert painted, f"chart {canvas} is empty"
    canvas = page.find("[data-chart=throughput] canvas")
    ActionChains(page.browser).move_to_element(canvas).perform()
    page.wait(lambda: page.text("[data-chart=kv] .at") != "", "the other charts don't follow the cursor")
    times = {element.text for element in page.all("figure .at")}
    assert len(times) == 1
    label = page.find("[data-chart=kv] canvas").get_attribute("aria-label")
    assert label is not None
    assert times.pop() in label


def test_pause_holds_the_page_still_and_says_how_much_is_new(page: Page) -> None:
    page.open()
    page.wait_text("[data-field=state]", "Ready")
    page.find("body").send_keys("l")
    held = page.text("[data-field=outputNote]")
    page.wait_text("#mode", "s new")
    assert page.text("[data-field=outputNote]") == held
    assert "at=" in page.browser.current_url
    page.find("#pause").click()
    page.wait(lambda: page.text("[data-field=outputNote]") != held, "the page never resumed")
    assert (page.text("#pause"), page.text("#mode")) == ("Pause", "Live")
    assert page.browser.current_url.endswith("#live")


@pytest.mark.parametrize("stub", [Stub(rate=0.0, past_s=5.0)], ids=["idle"])
def test_idle_server_shows_a_hint_and_no_made_up_numbers(page: Page) -> None:
    page.open()
    page.wait_text("#idle", "Ready, and nobody is asking")
    assert "/v1/chat/completions" in page.text("#curl")
    assert page.text("[data-field=hit]") == "–"
    assert page.text("[data-field=ttft-p50]") == "–"
    shown = page.find("main").text
    assert "NaN" not in shown
    assert "undefined" not in shown
    assert "null" not in shown
    page.find("#idle a").click()
    page.wait(lambda: page.find("#panel-playground").is_displayed(), "the link didn't open the Playground")


def test_playground_streams_an_answer_with_its_numbers(page: Page) -> None:
    page.open("#playground")
    ask(page, "What is it?")
    page.wait(lambda: page.all(".metrics"), "the answer never ended")
    assert page.text(".message.assistant .text") == ANSWER
    assert page.find("#playground-model").get_attribute("value") == "SmolLM2-135M-Instruct"
    metrics = {item.text.split("\n")[0]: item.text.split("\n")[-1] for item in page.all(".metrics div")}
    assert metrics["tokens"] == str(len(ANSWER.split()))
    assert metrics["cached"] == "16"
    assert metrics["finish"] == "stop"
    assert metrics["TTFT"].endswith("ms")
    assert metrics["speed"].endswith("tok/s")
    assert page.console() == []


def test_playground_keeps_the_conversation_and_sends_its_settings(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.all("#seed"), "the settings never came")
    for field, value in {"system": "Be brief.", "temperature": "0", "max_tokens": "3", "seed": "7"}.items():
        element = page.find(f"#{field}")
        element.clear()
        element.send_keys(value)
    ask(page, "one")
    page.wait(lambda: len(page.all(".metrics")) == 1, "the first answer never ended")
    page.find(".snippet-panel summary").click()
    assert '"seed": 7' in page.text("#chat-curl")
    page.find("#prompt").send_keys("two" + Keys.ENTER)
    page.wait(lambda: len(page.all(".metrics")) == 2, "the second answer never ended")
    sent = page.stub.chats[-1]
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0, 3, 7)
    assert "top_p" not in sent


def test_stop_ends_the_stream_here_and_upstream(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.all("#max_tokens"), "the settings never came")
    page.find("#max_tokens").clear()
    ask(page, "forever")
    page.wait(lambda: len(page.text(".message.assistant .text")) > 20, "nothing streams")
    page.find("#stop-answer").click()
    page.wait_text(".message.assistant", "Stopped.")
    assert page.stub.left.wait(5), "the service still generates"
    length = len(page.text(".message.assistant .text"))
    page.wait(lambda: page.find("#send").is_displayed(), "the composer never came back")
    assert len(page.text(".message.assistant .text")) == length


def test_errors_are_shown_where_the_answer_would_be(page: Page) -> None:
    page.open("#playground")
    ask(page, "please break")
    page.wait_text(".message .failure", "the engine process died")
    assert page.text(".message.assistant .text") == "Light passes through"
    page.find("#prompt").send_keys("refuse this" + Keys.ENTER)
    page.wait(lambda: len(page.all(".message .failure")) == 2, "the refusal is not shown")
    assert "param max_tokens" in page.all(".message .failure")[1].text


def test_tabs_work_from_the_keyboard_alone(page: Page) -> None:
    page.open()
    page.run("document.activeElement.blur()")
    ActionChains(page.browser).send_keys(Keys.TAB).perform()
    assert page.run("return document.activeElement.id") == "tab-live"
    while page.run("return document.activeElement.id") != "tab-playground":
        ActionChains(page.browser).send_keys(Keys.ARROW_RIGHT).perform()
    assert page.find("#panel-playground").is_displayed()
    assert not page.find("#panel-live").is_displayed()
    assert page.browser.current_url.endswith("#playground")
    assert page.find("#tab-playground").get_attribute("aria-selected") == "true"
    ActionChains(page.browser).send_keys(Keys.HOME).perform()
    assert page.find("#panel-live").is_displayed()


def test_service_that_breaks_is_announced_and_the_page_recovers(page: Page) -> None:
    page.open()
    page.wait_text("[data-field=state]", "Ready")
    page.stub.broken = True
    page.wait_text("#banner", "can’t be reached")
    assert page.text("[data-field=state]") == "Unreachable"
    page.stub.broken = False
    page.wait(lambda: not page.find("#banner").is_displayed(), "the banner never went away")
    page.stub.state, page.stub.reason = "restarting", "the engine process died"
    page.wait_text("#banner", "Restarting: the engine process died")


def test_dashboard_that_goes_away_is_announced_and_the_page_reconnects(browser: Chrome, stub: Stub) -> None:
    with serving(stub.app()) as service_url:
        with serving(create_app(service_url, poll_interval_s=0.2)) as url:
            page = Page(browser, url, stub)
            page.open()
            page.wait_text("[data-field=state]", "Ready")
            page.run("window.sameDocument = true")
        page.wait_text("#banner", "own server doesn’t answer")
        assert page.text("[data-field=link]") == "reconnecting…"
        with serving(create_app(service_url, poll_interval_s=0.2), port=int(url.rsplit(":", 1)[1])):
            page.wait(lambda: page.text("[data-field=link]") == "live", "the page never came back")
            assert not page.find("#banner").is_displayed()
            assert page.run("return window.sameDocument") is True
            page.browser.get("about:blank")
        page.console()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light")])
def test_page_fits_its_width(page: Page, width: int, scheme: str, tmp_path: Path) -> None:
    page.emulate(width=width, scheme=scheme)
    for tab in ("live", "load", "playground"):
        page.open(f"#{tab}")
        page.wait_text("[data-field=state]", "Ready")
        overflow = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow == 0, f"{tab} is {overflow} px too wide"
        cut = page.run(
            "return [...document.querySelectorAll('.big, .panel h3, [role=tab], button')]"
            ".filter((node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1)"
            ".map((node) => node.textContent)"
        )
        assert cut == []
        assert page.browser.save_screenshot(str(tmp_path / f"{tab}-{width}-{scheme}.png"))
