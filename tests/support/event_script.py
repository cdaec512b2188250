"""Write event streams by hand: the script says what happened when, sequence numbers are filled in."""

from collections.abc import Callable
from typing import Any

from engine.clock import ManualClock
from engine.events import (
    BlockAllocated,
    BlockFreed,
    BlockReleased,
    EngineStarted,
    Event,
    PrefixLookup,
    RequestAborted,
    RequestArrived,
    RequestChunk,
    RequestFinished,
    RequestFirstToken,
    RequestQueued,
    RequestScheduled,
    RequestTokens,
    SequenceFinished,
    StepFinished,
    StepStarted,
)
from observability.backlog import Backlog
from observability.metrics import Metrics
from observability.recorder import Recorder, RingSizes
from observability.timeline import RequestTimeline


class Script:
    """A recorder on a manual clock, and short ways to tell it things.

    Attributes:
        t: monotonic seconds stamped on the next events; `at` moves it (and the clock).
    """

    def __init__(
        self,
        *,
        start: float = 100.0,
        ring_sizes: RingSizes | None = None,
        on_closed: Callable[[RequestTimeline], None] = lambda _: None,
        backlog: Backlog | None = None,
    ) -> None:
        self.clock = ManualClock(start)
        self.metrics = Metrics(version="0.0.0", routes=("/v1/chat/completions", "/stats"))
        self.recorder = Recorder(
            self.clock, metrics=self.metrics, ring_sizes=ring_sizes, on_closed=on_closed, backlog=backlog
        )
        self.step = 0
        self._seq = 0
        self._begun: set[tuple[str, int]] = set()

    @property
    def t(self) -> float:
        return self.clock.now()

    def at(self, t: float) -> "Script":
        self.clock.advance(t - self.clock.now())
        return self

    def event(self, kind: type[Event], /, **fields: Any) -> Event:
        self._seq += 1
        return kind(seq=self._seq, t=self.t, step=self.step, **fields)

    def say(self, kind: type[Event], /, **fields: Any) -> None:
        self.recorder.consume([self.event(kind, **fields)])

    def new_life(self) -> None:
        """The next event is number 1 of another engine process."""
        self._seq = 0

    # --- common sentences ---

    def engine_started(self, num_blocks: int = 64) -> None:
        self.say(
            EngineStarted,
            model="smol",
            executor="torch",
            block_size=16,
            num_blocks=num_blocks,
            max_num_seqs=8,
            max_num_batched_tokens=256,
            max_model_len=1024,
            prefix_cache=True,
        )

    def open(self, request_id: str, *, stream: bool = True, trace_id: str = "") -> None:
        self.recorder.request_opened(
            request_id,
            trace_id=trace_id,
            route="/v1/chat/completions",
            model="smol",
            stream=stream,
            arrival=self.t,
        )

    def arrive(self, request_id: str, *, num_prompt_tokens: int = 10, max_tokens: int = 16, n: int = 1) -> None:
        self.say(
            RequestArrived,
            request_id=request_id,
            arrival=self.t,
            num_prompt_tokens=num_prompt_tokens,
            max_tokens=max_tokens,
            n=n,
        )
        self.say(RequestQueued, request_id=request_id, num_waiting=1)

    def schedule(self, request_id: str, *, num_cached_tokens: int = 0) -> None:
        self.say(RequestScheduled, request_id=request_id, num_cached_tokens=num_cached_tokens)

    def chunk(self, request_id: str, start: int, num_tokens: int, num_recomputed: int = 0) -> None:
        self.say(RequestChunk, request_id=request_id, start=start, num_tokens=num_tokens, num_recomputed=num_recomputed)

    def tokens(self, request_id: str, num_tokens: int = 1, *, index: int = 0, total: int = 1) -> None:
        """New tokens of a choice; its first ones are announced as the engine does."""
        if (request_id, index) not in self._begun:
            self._begun.add((request_id, index))
            self.say(RequestFirstToken, request_id=request_id, index=index)
        self.say(RequestTokens, request_id=request_id, index=index, num_tokens=num_tokens, num_output_tokens=total)

    def look_up(self, request_id: str, *, num_prompt_tokens: int, num_matched_tokens: int) -> None:
        self.say(
            PrefixLookup,
            request_id=request_id,
            num_prompt_tokens=num_prompt_tokens,
            num_matched_tokens=num_matched_tokens,
            why="",
        )

    def finish(self, request_id: str, *, reason: str = "stop", num_output_tokens: int = 1) -> None:
        self.say(
            SequenceFinished,
            request_id=request_id,
            index=0,
            finish_reason=reason,
            num_output_tokens=num_output_tokens,
        )
        self.say(
            RequestFinished,
            request_id=request_id,
            finish_reason=reason,
            num_prompt_tokens=10,
            num_cached_tokens=0,
            num_output_tokens=num_output_tokens,
            num_preemptions=0,
        )

    def abort(self, request_id: str) -> None:
        self.say(RequestAborted, request_id=request_id, reason="client gone", num_output_tokens=0)

    def allocate(self, block_id: int, request_id: str) -> None:
        self.say(BlockAllocated, block_id=block_id, request_id=request_id, index=0, position=block_id)

    def release(self, block_id: int, request_id: str, *, freed: bool = True) -> None:
        self.say(BlockReleased, block_id=block_id, request_id=request_id, index=0, ref_count=0)
        if freed:
            self.say(BlockFreed, block_id=block_id)

    def run_step(self, duration: float = 0.01, **fields: Any) -> None:
        """A step that starts now and ends `duration` later, with half its time in execute."""
        self.step += 1
        self.say(StepStarted, num_waiting=0, num_running=1)
        self.at(self.t + duration)
        values: dict[str, Any] = {
            "kind": "decode",
            "num_seqs": 1,
            "num_decode_seqs": 1,
            "num_prefill_tokens": 0,
            "num_decode_tokens": 1,
            "num_recomputed_tokens": 0,
            "num_generated_tokens": 1,
            "token_budget": 256,
            "num_running": 1,
            "num_waiting": 0,
            "blocked_on": "",
            "schedule_s": duration / 8,
            "execute_s": duration / 2,
            "sample_s": duration / 8,
            "update_s": duration / 8,
            "num_free_blocks": 60,
            "num_referenced_blocks": 3,
            "num_cached_blocks": 1,
            "num_tail_waste_tokens": 5,
        }
        self.say(StepFinished, **(values | fields))

    # --- reading ---

    def scrape(self, accept: str = "") -> dict[str, float]:
        """Return the exposition as {`name{labels}`: value}."""
        body, _ = self.metrics.render(accept)
        lines = body.decode().splitlines()
        samples = (line.split(" # ")[0].rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}
