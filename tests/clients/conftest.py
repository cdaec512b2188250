"""Workers live as long as the tests of this folder need them."""

from collections.abc import Iterator

import pytest

from tests.clients.languages import close_workers


@pytest.fixture(scope="session", autouse=True)
def _workers() -> Iterator[None]:
    yield
    close_workers()
