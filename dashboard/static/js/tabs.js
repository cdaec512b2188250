/** ARIA tabs: arrows move between them, the chosen one is in the URL's hash. */

/** @param {(name: string) => void} onShow called with the name of the tab now shown */
export function startTabs(list, onShow) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];

  function show(tab, { focus = false } = {}) {
    for (const other of tabs) {
      const selected = other === tab;
      other.setAttribute("aria-selected", String(selected));
      other.tabIndex = selected ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !selected;
    }
    if (focus) tab.focus();
    onShow(tab.dataset.tab);
  }

  const fromHash = () => tabs.find((tab) => tab.dataset.tab === location.hash.slice(1)) ?? tabs[0];

  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    choose(tabs[(moves[event.key] + tabs.length) % tabs.length], { focus: true });
  });

  function choose(tab, options) {
    history.replaceState(null, "", `#${tab.dataset.tab}`);
    show(tab, options);
  }

  for (const tab of tabs) tab.addEventListener("click", () => choose(tab));
  addEventListener("hashchange", () => show(fromHash()));
  show(fromHash());
}
