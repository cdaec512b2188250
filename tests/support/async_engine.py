"""An AsyncEngine over a fake engine in a thread, for tests of the client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from engine.client import AsyncEngine
from engine.clock import Clock, SystemClock
from engine.config import EngineConfig
from engine.events import Event
from engine.launch import thread_launcher
from engine.messages import ChoiceOutput
from engine.sampling_params import SamplingParams
from engine.sequence import EngineRequest
from engine.supervision import SupervisionConfig
from tests.support.fake_core import FakeEngine

FAST = SupervisionConfig(check_s=0.01, first_delay_s=0.0, max_delay_s=0.0, shutdown_s=2.0, reap_s=0.5)
CONFIG = EngineConfig(model="fake", heartbeat_s=0.02)


def make_request(
    request_id: str = "r", *, n: int = 1, max_tokens: int = 3, prompt: Sequence[int] = (1, 2, 3)
) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        params=SamplingParams(n=n, max_tokens=max_tokens),
        arrival=0.0,
    )


@asynccontextmanager
async def started_engine(
    fake: FakeEngine,
    *,
    events: list[Event] | None = None,
    clock: Clock | None = None,
    supervision: SupervisionConfig = FAST,
    is_ready: bool = True,
) -> AsyncIterator[AsyncEngine]:
    """Yield a client over `fake`, loaded unless `is_ready` is False; close it at the end."""
    sink: list[Event] = [] if events is None else events
    engine = await AsyncEngine.start(
        CONFIG,
        clock=clock or SystemClock(),
        on_events=sink.extend,
        launcher=thread_launcher(fake.build, clock=SystemClock()),
        supervision=supervision,
    )
    async with engine:
        if is_ready:
            await engine.wait_ready()
        yield engine


async def collect(outputs: Any) -> list[ChoiceOutput]:
    """Return every ChoiceOutput of a generation, in order."""
    return [output async for batch in outputs for output in batch]


def token_ids(outputs: list[ChoiceOutput], index: int = 0) -> list[int]:
    return [token_id for output in outputs if output.index == index for token_id in output.token_ids]


def finish_reasons(outputs: list[ChoiceOutput]) -> dict[int, list[str]]:
    """Return the finish reasons that each choice got; one each is right."""
    reasons: dict[int, list[str]] = {}
    for output in outputs:
        if output.finish_reason:
            reasons.setdefault(output.index, []).append(output.finish_reason)
    return reasons


async def hold_step(fake: FakeEngine) -> None:
    """Wait until the engine stands in a step; the gate must be closed and a request pending."""
    assert await asyncio.to_thread(fake.in_step.wait, 10.0), "the engine made no step"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process brings about."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
