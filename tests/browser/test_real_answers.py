"""Playground and Load over the real engine with the real model: what the stand-in can't show."""

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

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture
def real(browser: Chrome) -> Iterator[Page]:
    service = ServeProcess("--max-model-len", "1024", "--threads", "1")
    try:
        service.wait_ready()
        with serving(create_app(service.url)) as url:
            page = Page(browser, url, Stub(rate=0.0, past_s=1.0))
            page.emulate(width=1280)
            page.console()
            yield page
            browser.get("about:blank")
    finally:
        service.close()


def test_answer_is_taken_apart_raced_and_put_under_load(real: Page, tmp_path: Path) -> None:
    page = real
    page.open("#playground")
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived", 30.0)
    page.find("#max_tokens").clear()
    page.find("#max_tokens").send_keys("12")
    page.find("#want-tokens").click()
    page.find("#prompt").send_keys("Count from one to five." + Keys.ENTER)
    page.wait(lambda: page.all(".metrics"), "the answer never ended", 30.0)
    numbers = {item.text.split("\n")[0]: item.text.split("\n")[-1] for item in page.all(".metrics div")}
    assert 1 <= int(numbers["tokens"]) <= 12
    assert numbers["queue"].endswith("ms")
    page.run("document.querySelector('[data-view=tokens]').click()")
    assert len(page.all(".tokens .token")) == int(numbers["tokens"])
    assert len(page.all(".alternatives li")) >= 5
    page.browser.save_screenshot(str(tmp_path / "playground.png"))
    links = [link.get_attribute("href") for link in page.all(".message .links a")]
    assert [str(link).split("#")[1].split("?")[0] for link in links] == ["requests", "replay"]

    page.find("[data-mode=race]").click()
    page.find("#race-lanes").send_keys("2")
    page.find("#race-start").click()
    page.wait_text("#race-verdict", "2 requests together make", 60.0)

    page.open("#load")
    page.wait(lambda: page.all("#load-model option"), "the model never arrived", 30.0)
    for name, value in {
        "duration-s": "3",
        "warm-up-s": "0.5",
        "concurrency": "2",
        "prompt-a": "32",
        "output-a": "8",
    }.items():
        page.run(f"document.querySelector('#load-{name}').value = '{value}'")
    page.run("document.querySelector('#load-start').click()")
    page.wait(lambda: page.all(".figures"), "the load never ended", 60.0)
    answered, errors = (row.find_element("css selector", "td").text for row in page.all(".figures tbody tr")[1:3])
    assert int(answered) > 1
    assert errors.startswith("0 + 0")
    page.browser.save_screenshot(str(tmp_path / "load.png"))
    assert page.console() == []
