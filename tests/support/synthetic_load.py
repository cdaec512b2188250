"""A made-up engine life that looks like real traffic, for pages and charts: seconds to minutes of it in a moment."""

import math
import random
from dataclasses import dataclass

from engine.clock import ManualClock
from engine.events import (
    BlockAllocated,
    BlockFreed,
    BlockReleased,
    EngineStarted,
    EventLog,
    PrefixLookup,
    RequestArrived,
    RequestChunk,
    RequestFinished,
    RequestFirstToken,
    RequestPreempted,
    RequestQueued,
    RequestResumed,
    RequestScheduled,
    RequestTokens,
    SequenceFinished,
    StepFinished,
    StepStarted,
)
from observability.metrics import Metrics
from observability.recorder import Recorder

NUM_BLOCKS = 512
BLOCK_SIZE = 16
MAX_NUM_SEQS = 12
CHUNK = 64


class OffsetClock(ManualClock):
    """A manual clock whose wall time is a real date.

    Args:
        now: first monotonic reading.
        epoch: wall time at monotonic 0.
    """

    def __init__(self, now: float, epoch: float) -> None:
        super().__init__(now)
        self._epoch = epoch

    def wall(self) -> float:
        return self._epoch + self.now()


@dataclass(slots=True)
class _Request:
    request_id: str
    num_prompt: int
    num_cached: int
    max_tokens: int
    computed: int = 0
    output: int = 0
    blocks: int = 0
    preempted: bool = False


class SyntheticLoad:
    """Runs a toy scheduler in simulated time and feeds a recorder.

    Args:
        clock: moved by `run_until`.
        seed: of arrivals and lengths.
        rate: mean requests per second; it swells and ebbs.
    """

    def __init__(self, clock: ManualClock, *, seed: int = 1, rate: float = 3.0) -> None:
        self.clock = clock
        self.metrics = Metrics(routes=("/v1/chat/completions",))
        self.recorder = Recorder(clock, metrics=self.metrics)
        self.rate = rate
        self._log = EventLog(clock)
        self._draw = random.Random(seed)
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._free = NUM_BLOCKS
        self._cached = 0
        self._next_arrival = clock.now() + 0.5
        self._num = 0
        self._log.emit(
            EngineStarted,
            model="/models/a-file.gguf",
            executor="torch",
            block_size=BLOCK_SIZE,
            num_blocks=NUM_BLOCKS,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=512,
            max_model_len=8192,
            prefix_cache=True,
        )
        self._flush()

    def run_until(self, t: float) -> None:
        """Simulate up to monotonic second `t`."""
        while self.clock.now() < t:
            self._arrivals()
            if self._waiting or self._running:
                self._step()
            else:
                self.clock.advance(min(0.05, max(0.001, t - self.clock.now())))

    def _flush(self) -> None:
        self.recorder.consume(self._log.drain())

    def _arrivals(self) -> None:
        now = self.clock.now()
        while self.rate > 0 and self._next_arrival <= now:
            self._num += 1
            request_id = f"req-{self._num:05d}"
            num_prompt = self._draw.choice((24, 48, 160, 320))
            cached = self._draw.choice((0, 0, 16, num_prompt // 32 * 16))
            request = _Request(request_id, num_prompt, cached, self._draw.randint(20, 120))
            self.recorder.request_opened(
                request_id,
                trace_id=f"{self._num:032x}",
                route="/v1/chat/completions",
                model="smol",
                stream=True,
                arrival=now,
            )
            self._log.emit(
                RequestArrived, request_id=request_id, arrival=now, num_prompt_tokens=num_prompt, max_tokens=120
            )
            self._waiting.append(request)
            self._log.emit(RequestQueued, request_id=request_id, num_waiting=len(self._waiting))
            swell = 1.0 + 0.8 * math.sin(now / 17.0) + (2.0 if int(now) % 75 > 62 else 0.0)
            self._next_arrival = now + self._draw.expovariate(self.rate * max(0.15, swell))
        if self.rate <= 0:
            self._next_arrival = now + 0.5

    def _admit(self) -> str:
        while self._waiting:
            request = self._waiting[0]
            needed = (request.num_prompt + BLOCK_SIZE) // BLOCK_SIZE
            if len(self._running) >= MAX_NUM_SEQS:
                return "max_num_seqs"
            if needed > self._free + self._cached:
                return "kv_blocks"
            self._waiting.pop(0)
            if request.preempted:
                self._log.emit(
                    RequestResumed,
                    request_id=request.request_id,
                    num_cached_tokens=0,
                    num_recompute_tokens=request.num_prompt,
                )
                request.computed, request.preempted = 0, False
            else:
                self._log.emit(
                    PrefixLookup,
                    request_id=request.request_id,
                    num_prompt_tokens=request.num_prompt,
                    num_matched_tokens=request.num_cached,
                    why="tail" if request.num_cached else "cold",
                )
                self._log.emit(RequestScheduled, request_id=request.request_id, num_cached_tokens=request.num_cached)
                request.computed = request.num_cached
            self._grow(request, needed)
            self._running.append(request)
        return ""

    def _grow(self, request: _Request, to: int) -> None:
        while request.blocks < to:
            if self._free == 0 and self._cached > 0:
                self._cached -= 1
                self._free += 1
                self._log.emit(BlockFreed, block_id=0)
            self._free -= 1
            request.blocks += 1
            self._log.emit(
                BlockAllocated, block_id=1, request_id=request.request_id, index=0, position=request.blocks - 1
            )

    def _release(self, request: _Request, *, keep: int) -> None:
        for i in range(request.blocks):
            self._log.emit(BlockReleased, block_id=1, request_id=request.request_id, index=0, ref_count=0)
            if i < keep:
                self._cached += 1
            else:
                self._free += 1
                self._log.emit(BlockFreed, block_id=1)
        request.blocks = 0

    def _step(self) -> None:
        self._log.step += 1
        self._log.emit(StepStarted, num_waiting=len(self._waiting), num_running=len(self._running))
        blocked_on = self._admit()
        budget, prefill, decode = 192, 0, 0
        produced: list[_Request] = []
        for request in self._running:
            if request.computed >= request.num_prompt:
                decode += 1
                produced.append(request)
            elif budget > 0:
                take = min(CHUNK, budget, request.num_prompt - request.computed)
                self._log.emit(RequestChunk, request_id=request.request_id, start=request.computed, num_tokens=take)
                request.computed += take
                budget -= take
                prefill += take
                if request.computed >= request.num_prompt:
                    produced.append(request)
        duration = (
            0.011 + 0.0006 * prefill * self._draw.uniform(0.6, 1.0) + 0.0022 * decode * self._draw.uniform(0.8, 1.4)
        )
        self.clock.advance(duration)
        now = self.clock.now()
        for request in produced:
            if request.output == 0:
                self._log.emit(RequestFirstToken, request_id=request.request_id)
            request.output += 1
            self._grow(request, (request.num_prompt + request.output) // BLOCK_SIZE + 1)
            self._log.emit(RequestTokens, request_id=request.request_id, num_tokens=1, num_output_tokens=request.output)
        firsts = [request for request in produced if request.output == 1]
        finished = [request for request in produced if request.output >= request.max_tokens]
        for request in finished:
            self._finish(request)
        if len(self._running) > 9 and self._draw.random() < 0.01:
            self._preempt(self._running[-1])
        self._log.emit(
            StepFinished,
            kind="mixed" if prefill and decode else "prefill" if prefill else "decode",
            num_seqs=len(self._running),
            num_decode_seqs=decode,
            num_prefill_tokens=prefill,
            num_decode_tokens=decode,
            num_recomputed_tokens=0,
            num_generated_tokens=len(produced),
            token_budget=192,
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            blocked_on=blocked_on,
            schedule_s=0.0004,
            execute_s=duration - 0.002,
            sample_s=0.0008,
            update_s=0.0004,
            num_free_blocks=self._free,
            num_referenced_blocks=NUM_BLOCKS - self._free - self._cached,
            num_cached_blocks=self._cached,
            num_tail_waste_tokens=8 * len(self._running),
        )
        self._flush()
        for request in firsts:
            self.recorder.sent_first(request.request_id, now + 0.001)
        for request in finished:
            self.recorder.sent_last(request.request_id, now + 0.002)

    def _finish(self, request: _Request) -> None:
        self._running.remove(request)
        reason = self._draw.choice(("stop", "length"))
        self._log.emit(
            SequenceFinished,
            request_id=request.request_id,
            index=0,
            finish_reason=reason,
            num_output_tokens=request.output,
        )
        self._release(request, keep=request.num_prompt // BLOCK_SIZE // 2)
        self._log.emit(
            RequestFinished,
            request_id=request.request_id,
            finish_reason=reason,
            num_prompt_tokens=request.num_prompt,
            num_cached_tokens=request.num_cached,
            num_output_tokens=request.output,
            num_preemptions=0,
        )

    def _preempt(self, request: _Request) -> None:
        self._running.remove(request)
        self._log.emit(
            RequestPreempted, request_id=request.request_id, num_lost_tokens=request.computed, num_preemptions=1
        )
        self._release(request, keep=0)
        request.preempted = True
        self._waiting.insert(0, request)
