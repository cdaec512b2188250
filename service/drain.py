"""The way out: nothing new, what runs may end within the grace period, the rest is told so."""

import asyncio

from service.ports import Engine


class Drain:
    """Drains once, however often it is asked.

    Args:
        engine: refuses new requests from `begin` on and ends what is left after the grace period with an error, which
            streams pass on in-band.
        grace_s: seconds for what runs.
    """

    def __init__(self, engine: Engine, *, grace_s: float) -> None:
        self._engine = engine
        self._grace_s = grace_s
        self._task: asyncio.Task[int] | None = None

    def begin(self) -> None:
        """Start draining, if it hasn't been."""
        if self._task is None:
            self._task = asyncio.create_task(self._engine.drain(self._grace_s), name="drain")

    async def finish(self) -> int:
        """Drain and return how many requests had to be ended."""
        self.begin()
        assert self._task is not None
        return await asyncio.shield(self._task)
