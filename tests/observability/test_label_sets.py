"""Label sets that observability declares by itself, because it may not import the engine, against the engine's own."""

from engine.schedule import BlockedOn
from observability.metrics import WAIT_REASONS


def test_wait_reasons_are_the_schedulers_reasons_and_one_for_waiting_on_the_next_step() -> None:
    assert {*WAIT_REASONS} == {reason.value for reason in BlockedOn if reason.value} | {"next_step"}
