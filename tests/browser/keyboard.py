"""What the keyboard reaches."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Page

PRESSES = 30  # of Tab in one go
MAX_PRESSES = 300

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
