"""Label sets that observability declares by itself, because it may not import the engine, against the engine's own."""

import service.errors  # noqa: F401 - its classes are looked at
from engine.errors import PellucidError
from engine.schedule import BlockedOn
from observability.label_sets import ERROR_TYPES, WAIT_REASONS


def test_wait_reasons_are_the_schedulers_reasons_and_one_for_waiting_on_the_next_step() -> None:
    assert {*WAIT_REASONS} == {reason.value for reason in BlockedOn if reason.value} | {"next_step"}


def test_every_error_that_a_client_can_see_has_its_own_label() -> None:
    def subclasses(kind: type[PellucidError]) -> set[type[PellucidError]]:
        return {kind}.union(*(subclasses(child) for child in kind.__subclasses__()))

    ours = {kind.error_type for kind in subclasses(PellucidError) if kind.__module__.startswith(("engine", "service"))}
    assert ours - {"model_load_error", "config_error"} == set(ERROR_TYPES)
