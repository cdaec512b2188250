"""Many requests through the real scheduler, with a service around it that is all stamps, on one simulated clock.

Tokenizing, the inbox, steps of a length that depends on their tokens, detokenizing and slow readers all take simulated
time, so every cause of a request's wall time occurs and every moment is known.
"""

import heapq
import itertools
import random
from collections.abc import Callable

from engine.clock import ManualClock
from engine.events import (
    EngineStarted,
    Event,
    RequestAborted,
    RequestFailed,
    RequestFinished,
)
from engine.execution.forward_batch import ForwardBatch
from observability.metrics import Metrics
from observability.recorder import Recorder, RingSizes
from observability.timeline import RequestTimeline
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import ScriptedEngine

TICK_S = 1e-6
STEP_S = 0.004
TOKEN_S = 0.0004
NUM_BLOCKS = 34


class TickingClock(ManualClock):
    """Every look at it takes a microsecond, so no two stamps are equal and no stage takes no time."""

    def now(self) -> float:
        self.advance(TICK_S)
        return super().now()


class AttributedLoad:
    """One run.

    Attributes:
        events: all that the engine said.
        closed: the timelines, as the recorder tells of them.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.clock = TickingClock(1.0)
        self.engine = ScriptedEngine(
            num_blocks=NUM_BLOCKS,
            block_size=4,
            max_num_seqs=8,
            max_num_batched_tokens=24,
            cues=(self._execute,),
            verify_kv=False,
            check_every_event=False,
            clock=self.clock,
        )
        self.metrics = Metrics()
        self.closed: list[RequestTimeline] = []
        self.recorder = Recorder(
            self.clock,
            metrics=self.metrics,
            ring_sizes=RingSizes(requests=4_096),
            on_closed=self.closed.append,
        )
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._num_told = 0
        born = EngineStarted(
            seq=0, t=1.0, step=0, model="m", executor="scripted", block_size=4, num_blocks=NUM_BLOCKS, max_num_seqs=8,
            max_num_batched_tokens=24, max_model_len=1 << 20, prefix_cache=True,
        )  # fmt: skip
        self.recorder.consume([born])

    @property
    def events(self) -> list[Event]:
        return self.engine.events

    def run(self, num_requests: int) -> None:
        """Let requests come, about as fast as they can be served, and serve all of them."""
        t = self.clock.now()
        for number in range(num_requests):
            t += self._draw.expovariate(1 / 0.012)
            self._at(t, lambda number=number: self._open(f"r{number}"))  # type: ignore[misc]
        while self._due or self.engine.core.has_work:
            if not self.engine.core.has_work:
                self.clock.advance(max(0.0, self._due[0][0] - self.clock.now()))
            while self._due and self._due[0][0] <= self.clock.now():
                heapq.heappop(self._due)[2]()
            if self.engine.core.has_work:
                self.engine.step()
                self._tell()

    def _at(self, t: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (t, next(self._numbers), action))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(self.clock.now() + seconds, action)

    def _execute(self, call: int, batch: ForwardBatch) -> None:
        self.clock.advance(STEP_S + TOKEN_S * len(batch.token_ids) + self._draw.random() * 0.001)

    def _open(self, request_id: str) -> None:
        now = self.clock.now()
        self.recorder.request_opened(request_id, trace_id="", route="/", model="m", stream=True, arrival=now)
        self._after(self._draw.random() * 0.01, lambda: self._send(request_id, now))

    def _send(self, request_id: str, arrival: float) -> None:
        draw = self._draw
        self.recorder.request_encoded(request_id, self.clock.now())
        self.clock.advance(draw.random() * 0.002)
        shared = distinct_tokens(24, salt=draw.randrange(4))[: draw.randint(1, 24)]
        prompt = shared + distinct_tokens(draw.randint(1, 16), salt=100 + draw.randrange(1_000))
        max_tokens, n = draw.randint(1, 14), draw.choice([1, 1, 1, 1, 2, 3])
        self.engine.add(prompt, request_id=request_id, max_tokens=max_tokens, n=n, priority=draw.choice([0, 0, 0, 1]))
        if draw.random() < 0.05:
            self._after(draw.random() * 0.2, lambda: self._leave(request_id))
        self._tell()

    def _leave(self, request_id: str) -> None:
        """The client goes away."""
        self.recorder.sent_last(request_id, self.clock.now())
        self.engine.abort(request_id)
        self._tell()

    def _tell(self) -> None:
        events = self.engine.events[self._num_told :]
        self._num_told = len(self.engine.events)
        self.recorder.consume(events)
        for event in events:
            if isinstance(event, RequestFinished | RequestFailed):
                self._answer(event.request_id)
            assert not isinstance(event, RequestAborted) or event.reason == "cancelled"

    def _answer(self, request_id: str) -> None:
        """The end of an answer: maybe held up by its reader, then taken up, turned into text and sent."""
        if self._draw.random() < 0.1:
            begun = self.clock.now() - self._draw.random() * 0.1
            self._after(self._draw.random() * 0.3, lambda: self._unblock(request_id, begun))
            return
        self._after(self._draw.random() * 0.002, lambda: self._take(request_id))

    def _unblock(self, request_id: str, begun: float) -> None:
        self.recorder.send_blocked([request_id], begun, self.clock.now())
        self._take(request_id)

    def _take(self, request_id: str) -> None:
        start = self.clock.now()
        self.clock.advance(self._draw.random() * 0.001)
        self.recorder.answer_taken(request_id, start, self.clock.now())
        self._after(self._draw.random() * 0.002, lambda: self.recorder.sent_last(request_id, self.clock.now()))
