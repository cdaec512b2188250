"""axe-core in the page, and what the keyboard reaches."""

from importlib.resources import files
from typing import Any

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Page

AXE = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
PRESSES = 30  # of Tab in one go
MAX_PRESSES = 300

_RUN = """
const [within, done] = arguments;
axe.run(within, {resultTypes: ['violations']}).then(
  (result) => done(result.violations.map(({id, help, nodes}) => ({
    id, help, nodes: nodes.slice(0, 4).map(({html, failureSummary}) => `${html.slice(0, 160)} :: ${failureSummary}`),
  }))),
  (error) => done([{id: 'axe failed', help: String(error), nodes: []}]),
);
"""

_WATCH = """
window.reached = new WeakSet();
document.addEventListener('focusin', (event) => window.reached.add(event.target));
document.activeElement.blur();
"""

# What a pointer can use; one of a group that arrow keys move in is enough.
_MISSED = """
const usable = 'a[href], button, input, select, textarea, summary, canvas[tabindex]';
const visible = (node) => node.checkVisibility({visibilityProperty: true}) && !node.disabled;
const groups = '[role=tablist], table.rows tbody, [role=listbox], [role=grid], [role=tree], [role=radiogroup]';
const grouped = (node) => node.closest(groups);
return [...document.querySelectorAll(usable)]
  .filter((node) => visible(node) && !window.reached.has(node) && !grouped(node) && node.type !== 'radio')
  .map((node) => node.outerHTML.slice(0, 160));
"""


def violations(page: Page, within: str = "html") -> list[dict[str, Any]]:
    """Return what axe-core finds wrong with the page as it is, or with a part of it."""
    if not page.run("return Boolean(window.axe)"):
        page.run(AXE)
    found: list[dict[str, Any]] = page.browser.execute_async_script(_RUN, within)  # type: ignore[no-untyped-call]
    return found


def unreached_by_keyboard(page: Page) -> list[str]:
    """Return what can be clicked and isn't met on the way of the Tab key from the page's beginning."""
    page.run(_WATCH)
    for _ in range(MAX_PRESSES // PRESSES):
        ActionChains(page.browser, duration=0).send_keys(Keys.TAB * PRESSES).perform()
        missed = page.run(_MISSED)
        assert isinstance(missed, list)
        if not missed:
            return []
    return missed
