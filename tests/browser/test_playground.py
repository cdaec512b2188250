"""The Playground in a real browser: markdown, branches, tokens, other servers, the race, and hostile answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from dashboard.server import create_app
from dashboard.targets import Target
from tests.browser.conftest import Page
from tests.support.loopback import serving
from tests.support.stub_service import ANSWER, Stub

SHAPES = ("Sampling", "Penalties and bias", "Stopping", "Answer", "Scheduling and template")


def ask(page: Page, prompt: str) -> None:
    """Send a prompt and wait for the end of its answer."""
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived")
    before = len(page.all(".metrics"))
    page.find("#prompt").send_keys(prompt + Keys.ENTER)
    page.wait(lambda: len(page.all(".metrics")) > before, "the answer never ended")


def press(page: Page, label: str) -> None:
    """Press the last button of this label in the conversation."""
    buttons = [button for button in page.all("#conversation button") if button.text == label]
    assert buttons, f"there is no button {label}"
    page.browser.execute_script("arguments[0].click()", buttons[-1])  # type: ignore[no-untyped-call]


def test_markdown_is_shown_as_elements_and_its_source_on_demand(page: Page) -> None:
    page.open("#playground")
    ask(page, "markdown please")
    assert page.text(".markdown [role=heading]") == "Glass"
    assert page.text(".markdown strong") == "clear"
    assert [item.text for item in page.all(".markdown ol li")] == ["no electron absorbs it", "see n = c / v"]
    assert page.text(".markdown pre code") == "print('<b>1</b>')"
    assert page.text(".markdown td.align-right") == "2"
    press(page, "Source")
    assert page.text("pre.source").startswith("## Glass\n\nIt is **clear** because:")
    press(page, "Source")
    assert page.all("pre.source") == []
    assert page.console() == []


def test_regenerate_and_edit_make_branches_that_arrows_go_through(page: Page) -> None:
    page.open("#playground")
    ask(page, "first question")
    press(page, "Regenerate")
    page.wait_text(".assistant .branches", "2 / 2")
    page.wait(lambda: page.all(".metrics"), "the second answer never ended")
    ask(page, "follow-up")
    assert [m["role"] for m in page.stub.chats[-1]["messages"]] == ["user", "assistant", "user"]
    page.find(".assistant .branches button").click()
    page.wait(lambda: len(page.all(".message")) == 2, "the other branch shows what belongs to this one")
    page.wait_text(".assistant .branches", "1 / 2")
    press(page, "Edit")
    editor = page.find(".editor textarea")
    editor.clear()
    editor.send_keys("better question" + Keys.ENTER)
    page.wait_text(".user .branches", "2 / 2")
    page.wait(lambda: page.all(".metrics"), "the edited question was never answered")
    assert page.stub.chats[-1]["messages"] == [{"role": "user", "content": "better question"}]
    assert page.console() == []


def test_n_answers_are_branches_of_one_request(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived")
    page.run("document.querySelector('#n').closest('details').open = true")
    page.find("#n").send_keys("3")
    ask(page, "three, please")
    assert page.text(".assistant .branches").split() == ["‹", "1", "/", "3", "›"]
    assert page.stub.chats[-1]["n"] == 3
    assert len(page.stub.chats) == 1


def test_only_fields_that_the_server_takes_are_offered(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.find("#top_k").is_displayed(), "a field that the server takes is hidden")
    groups = [summary.text for summary in page.all("#settings summary") if summary.is_displayed()]
    assert groups == list(SHAPES)
    page.run("document.querySelectorAll('#settings details').forEach((group) => { group.open = true; })")
    assert page.find("#stop_token_ids").is_displayed()
    assert not page.find("#tools").is_displayed()
    assert not page.find("#response_format").is_displayed()


def test_wrong_field_keeps_the_message_and_says_why(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.find("#temperature").is_displayed(), "no settings")
    page.find("#temperature").clear()
    page.find("#temperature").send_keys("7")
    page.find("#prompt").send_keys("hello" + Keys.ENTER)
    assert (
        page.run("return document.querySelector('#temperature').validationMessage") == "Temperature must be at most 2."
    )
    assert page.find("#prompt").get_attribute("value") == "hello"
    assert page.stub.chats == []


def test_tokens_show_their_alternatives_under_the_pointer_and_from_the_keyboard(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.find("#want-tokens").is_displayed(), "the server's log probabilities are not offered")
    page.find("#want-tokens").click()
    ask(page, "tokens please")
    assert page.stub.chats[-1]["top_logprobs"] == 5
    press(page, "Tokens")
    tokens = page.all(".tokens .token")
    assert len(tokens) == len(ANSWER.split())
    ActionChains(page.browser).move_to_element(tokens[3]).perform()
    page.wait_text(".alternatives .note", "token 4 of 18")
    rows = [row.text.split("\n") for row in page.all(".alternatives li")]
    assert [[row[0].strip(), row[1]] for row in rows] == [["a", "50 %"], ["other", "25 %"]]
    page.run("document.querySelector('.token[tabindex=\"0\"]').focus()")
    ActionChains(page.browser).send_keys(Keys.END, Keys.ARROW_LEFT).perform()
    page.wait_text(".alternatives .note", "token 17 of 18")
    assert page.run("return document.activeElement.dataset.index") == "16"
    assert page.console() == []


@pytest.fixture
def other() -> Stub:
    return Stub(rate=0.0, past_s=5.0)


@pytest.fixture
def two_servers(browser: Chrome, stub: Stub, other: Stub) -> Iterator[Page]:
    with (
        serving(stub.app()) as service_url,
        serving(other.app()) as other_url,
        serving(create_app(service_url, targets=(Target("other", other_url, "OTHER_KEY"),))) as url,
    ):
        page = Page(browser, url, stub)
        page.emulate()
        page.console()
        yield page
        browser.get("about:blank")


def test_another_server_of_the_list_is_asked_instead(two_servers: Page, other: Stub) -> None:
    page = two_servers
    page.open("#playground")
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived")
    page.find("#playground-target").send_keys("other")
    ask(page, "who are you")
    assert len(other.chats) == 1
    assert page.stub.chats == []
    page.find(".snippet-panel summary").click()
    assert "Bearer $OTHER_KEY" in page.text("#chat-curl")
    assert page.console() == []


def test_race_tells_what_batching_is_worth(page: Page) -> None:
    page.open("#playground")
    page.wait(lambda: page.all("#playground-model option"), "the model never arrived")
    page.find("[data-mode=race]").click()
    page.find("#race-lanes").send_keys("8")
    page.find("#race-start").click()
    page.wait_text("#race-verdict", "8 requests together make")
    assert len(page.stub.chats) == 16
    assert len(page.all(".lane[data-state=done]")) == 16
    assert [heading.text for heading in page.all(".round h3")] == ["One after another", "Side by side"]
    assert page.console() == []


def test_hostile_model_output_is_inert(page: Page) -> None:
    page.open("#playground")
    page.run("window.alert = () => console.error('a model ran code')")
    page.wait(lambda: page.find("#want-tokens").is_displayed(), "the server's log probabilities are not offered")
    page.find("#want-tokens").click()
    ask(page, "hostile")
    shown = page.text(".message.assistant .text")
    assert shown.startswith("<img src=x onerror=alert(1)> <script>alert(1)</script> [click](javascript:alert(1))")
    assert page.all("#conversation img, #conversation script, #conversation iframe") == []
    links = page.run("return [...document.querySelectorAll('.markdown a')].map((a) => a.protocol + ' ' + a.rel)")
    assert links == ["http: noopener noreferrer nofollow"]
    overflow = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow == 0
    press(page, "Tokens")
    assert "(100,005 characters)" in page.text(".tokens")
    assert "‹U+202E›" in page.text(".tokens")
    fetched = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert isinstance(fetched, list)
    assert [name for name in fetched if not name.startswith(page.url)] == []
    assert page.console() == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_playground_fits_its_width_and_axe_finds_nothing(page: Page, width: int, scheme: str, tmp_path: Path) -> None:
    page.emulate(width=width, scheme=scheme)
    page.open("#playground")
    page.wait(lambda: page.find("#want-tokens").is_displayed(), "the server's log probabilities are not offered")
    page.run("document.querySelector('#want-tokens').click()")
    ask(page, "markdown please")
    press(page, "Regenerate")
    page.wait_text(".assistant .branches", "2 / 2")
    page.wait(lambda: page.all(".metrics"), "the second answer never ended")
    page.run("document.querySelectorAll('#settings details').forEach((group) => { group.open = true; })")
    assert page.violations() == []
    press(page, "Tokens")
    assert page.violations() == []
    page.browser.save_screenshot(str(tmp_path / "chat.png"))
    page.run("document.querySelector('[data-mode=race]').click()")
    page.run("document.querySelector('#race-start').click()")
    page.wait_text("#race-verdict", "8 requests together make")
    assert page.violations() == []
    overflow = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow == 0
    page.browser.save_screenshot(str(tmp_path / "race.png"))
