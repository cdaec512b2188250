"""What the liveness tests measure is reported at the end of the run, whether they pass or not."""

from collections.abc import Callable

import pytest

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def report_figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Take a line for the end of the run."""
    return request.config.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(FIGURES, [])
    if figures:
        terminalreporter.section("cost of a step")
        for figure in figures:
            terminalreporter.write_line(figure)
