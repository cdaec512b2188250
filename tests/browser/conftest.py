"""A headless Chromium, and a dashboard in front of a stand-in service."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait
from selenium_axe_python import Axe

from dashboard.server import create_app
from tests.support.loopback import serving
from tests.support.stub_service import Stub

REDRAWN = (StaleElementReferenceException,)  # looked up, and replaced before it was read
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=BackForwardCache",
    "--window-size=1440,900",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM and CHROMEDRIVER:
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="chromium and chromedriver are not installed"))


SCREENSHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"

TOO_WIDE = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
MOVES = """
const still = (style) => style.animationName === 'none' || style.animationPlayState === 'paused';
return [...document.querySelectorAll('body *')].filter((node) => {
  const style = getComputedStyle(node);
  return !still(style) || style.transitionDuration.split(',').some((time) => parseFloat(time) > 0.01);
}).map((node) => node.outerHTML.slice(0, 120));
"""
_AXE = """
const [within, done] = arguments;
const told = ({id, nodes}) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`);
axe.run(within, {resultTypes: ['violations']}).then(
  (result) => done(result.violations.flatMap(told)),
  (error) => done([`axe-core failed: ${error}`]),
);
"""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    driver = Chrome(options=options, service=ChromeService(str(CHROMEDRIVER)))
    yield driver
    driver.quit()


@dataclass
class Page:
    """The dashboard in the browser, and the service behind it."""

    browser: Chrome
    url: str
    stub: Stub

    def open(self, fragment: str = "") -> "Page":
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}/{fragment}")
        return self

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.find(selector).text)

    def run(self, script: str) -> object:
        return self.browser.execute_script(script)  # type: ignore[no-untyped-call]

    def wait(self, condition: object, message: str, seconds: float = 10.0) -> None:
        """Wait until `condition()` holds."""
        WebDriverWait(self.browser, seconds, poll_frequency=0.05, ignored_exceptions=REDRAWN).until(
            lambda _: condition(),  # type: ignore[operator]
            message,
        )

    def wait_text(self, selector: str, wanted: str, seconds: float = 10.0) -> None:
        self.wait(lambda: wanted in self.text(selector), f"{selector} never said {wanted!r}", seconds)

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]

    def violations(self, within: str = "html") -> list[str]:
        """Return what axe-core has against the page as it is now, or a part of it: rule and element of each finding."""
        if not self.run("return Boolean(window.axe)"):
            Axe(self.browser).inject()
        found: list[str] = self.browser.execute_async_script(_AXE, within)  # type: ignore[no-untyped-call]
        return found

    def emulate(self, *, width: int = 1440, height: int = 900, scheme: str = "light") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def emulate_calm(self) -> None:
        """Be somebody who asked for no motion, until `emulate` is called again."""
        features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture
def page(browser: Chrome, stub: Stub) -> Iterator[Page]:
    with serving(stub.app()) as service_url:
        app = create_app(service_url, poll_interval_s=0.2)
        with serving(app) as url:
            page = Page(browser, url, stub)
            page.emulate()
            page.console()
            yield page
            browser.get("about:blank")


@pytest.fixture
def stub() -> Stub:
    return Stub(rate=3.0, past_s=20.0)
