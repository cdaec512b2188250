"""The tabs of the page, in their order. One is shown as soon as its panel, templates/`name`.html, is there.

Its code is static/js/`name`/tab.js, loaded when it is first looked at; its styles, if it has its own, css/`name`.css.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab: `name` in the URL and in the names of its files, `title` for people."""

    name: str
    title: str


ALL_TABS = (
    Tab("live", "Live"),
    Tab("requests", "Requests"),
    Tab("replay", "KV replay"),
    Tab("load", "Load"),
    Tab("playground", "Playground"),
    Tab("stats", "Stats"),
    Tab("kernels", "Kernels"),
    Tab("metrics", "Raw metrics"),
    Tab("config", "Config"),
)


def built_tabs(templates: Path) -> tuple[Tab, ...]:
    """Return those whose panel is among the templates."""
    return tuple(tab for tab in ALL_TABS if (templates / f"{tab.name}.html").is_file())


def stylesheets(static: Path, tabs: tuple[Tab, ...]) -> tuple[str, ...]:
    """Return the names of the tabs that have a stylesheet of their own."""
    return tuple(tab.name for tab in tabs if (static / "css" / f"{tab.name}.css").is_file())
