"""Hand-written event streams: what an engine would say, line by line, for tests that read traces."""

from engine.clock import ManualClock
from engine.events import (
    BlockAllocated,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockPublished,
    BlockReleased,
    BlockShared,
    EngineStarted,
    Event,
    EventLog,
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
from observability.trace_header import SCHEMA_NAME, SCHEMA_VERSION, TraceHeader


def header(**changes: object) -> TraceHeader:
    """Return a header of a 6-block pool with 4-token blocks and a budget of 16, with `changes`."""
    fields: dict[str, object] = {
        "schema": SCHEMA_NAME,
        "version": SCHEMA_VERSION,
        "model": "scripted",
        "block_size": 4,
        "num_blocks": 6,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "max_model_len": 64,
        "prefix_cache": True,
        "wall_origin_s": 1.8e9,
        "monotonic_origin_s": 0.0,
    }
    return TraceHeader(**{**fields, **changes})  # type: ignore[arg-type]


class TraceScript:
    """Builds a stream in which every `say` is one event; counts are kept by the writer of the test."""

    def __init__(self, *, first_t: float = 1.0, first_seq: int = 1) -> None:
        self._clock = ManualClock(first_t)
        self._log = EventLog(self._clock, first_seq=first_seq)
        self._events: list[Event] = []

    def say(self, kind: type[Event], /, **fields: object) -> "TraceScript":
        self._clock.advance(0.001)
        self._log.emit(kind, **fields)
        self._events.extend(self._log.drain())
        return self

    def step(self) -> "TraceScript":
        self._log.step += 1
        return self.say(StepStarted, num_waiting=0, num_running=1)

    def step_done(
        self, *, prefill: int = 0, decode: int = 0, generated: int = 0, blocks: tuple[int, int, int]
    ) -> "TraceScript":
        """`blocks` are the free, referenced and cached ones."""
        return self.say(
            StepFinished,
            kind="mixed",
            num_seqs=1,
            num_decode_seqs=0,
            num_prefill_tokens=prefill,
            num_decode_tokens=decode,
            num_recomputed_tokens=0,
            num_generated_tokens=generated,
            token_budget=16,
            num_running=1,
            num_waiting=0,
            blocked_on="",
            schedule_s=0.0,
            execute_s=0.0,
            sample_s=0.0,
            update_s=0.0,
            num_free_blocks=blocks[0],
            num_referenced_blocks=blocks[1],
            num_cached_blocks=blocks[2],
            num_tail_waste_tokens=0,
        )

    def arrive(self, name: str, *, num_prompt: int, max_tokens: int = 1, n: int = 1) -> "TraceScript":
        self.say(RequestArrived, request_id=name, arrival=0.5, num_prompt_tokens=num_prompt, max_tokens=max_tokens, n=n)
        return self.say(RequestQueued, request_id=name, num_waiting=1)

    def admit(self, name: str, *, cached: int = 0) -> "TraceScript":
        return self.say(RequestScheduled, request_id=name, num_cached_tokens=cached)

    def chunk(self, name: str, start: int, num_tokens: int) -> "TraceScript":
        return self.say(RequestChunk, request_id=name, start=start, num_tokens=num_tokens)

    def first_token(self, name: str, index: int = 0) -> "TraceScript":
        self.say(RequestFirstToken, request_id=name, index=index)
        return self.token(name, 1, index)

    def token(self, name: str, num_output_tokens: int, index: int = 0) -> "TraceScript":
        return self.say(RequestTokens, request_id=name, index=index, num_tokens=1, num_output_tokens=num_output_tokens)

    def finish(self, name: str, *, num_prompt: int, outputs: int = 1, cached: int = 0, n: int = 1) -> "TraceScript":
        for index in range(n):
            self.say(SequenceFinished, request_id=name, index=index, finish_reason="length", num_output_tokens=outputs)
        return self.say(
            RequestFinished,
            request_id=name,
            finish_reason="length",
            num_prompt_tokens=num_prompt,
            num_cached_tokens=cached,
            num_output_tokens=outputs * n,
            num_preemptions=0,
        )

    def allocate(self, block_id: int, name: str, position: int, index: int = 0) -> "TraceScript":
        return self.say(BlockAllocated, block_id=block_id, request_id=name, index=index, position=position)

    def share(self, block_id: int, name: str, position: int, *, refs: int, index: int = 0) -> "TraceScript":
        return self.say(BlockShared, block_id=block_id, request_id=name, index=index, position=position, ref_count=refs)

    def copy(self, source: int, block_id: int, name: str, *, num_tokens: int, index: int = 0) -> "TraceScript":
        return self.say(
            BlockCopied, block_id=block_id, source=source, request_id=name, index=index, num_tokens=num_tokens
        )

    def publish(self, block_id: int, name: str, *, parent: int = -1, parent_hash: str = "") -> "TraceScript":
        return self.say(
            BlockPublished,
            block_id=block_id,
            parent_block_id=parent,
            block_hash=f"h{block_id}",
            parent_hash=parent_hash if parent_hash or parent < 0 else f"h{parent}",
            request_id=name,
        )

    def release(self, block_id: int, name: str, *, refs: int = 0, index: int = 0) -> "TraceScript":
        return self.say(BlockReleased, block_id=block_id, request_id=name, index=index, ref_count=refs)

    def free(self, block_id: int) -> "TraceScript":
        return self.say(BlockFreed, block_id=block_id)

    def evict(self, block_id: int) -> "TraceScript":
        self.say(BlockEvicted, block_id=block_id, reason="capacity")
        return self.free(block_id)

    @property
    def events(self) -> list[Event]:
        return list(self._events)


def one_request(script: TraceScript | None = None) -> TraceScript:
    """A 5-token request `a` with one output token: block 0 stays cached, block 1 is freed."""
    name = "a"
    script = (script or TraceScript()).arrive(name, num_prompt=5).step()
    script.admit(name).allocate(0, name, 0).allocate(1, name, 1).chunk(name, 0, 5).publish(0, name)
    script.first_token(name).finish(name, num_prompt=5)
    script.release(1, name).free(1).release(0, name)
    return script.step_done(prefill=5, generated=1, blocks=(5, 0, 1))


def started(script: TraceScript) -> TraceScript:
    """Say that an engine with the pool of `header` is ready."""
    sizes = {"block_size": 4, "num_blocks": 6, "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 64}
    return script.say(EngineStarted, model="m", executor="e", prefix_cache=True, **sizes)


def rounds(number: int, *, first_seq: int = 1) -> list[Event]:
    """An engine's start, and the same request so many times, each in a pool as the one before left it."""
    script = started(TraceScript(first_seq=first_seq))
    for count in range(number):
        name = f"r{count}"
        script.arrive(name, num_prompt=3).step().admit(name).allocate(5, name, 0).chunk(name, 0, 3)
        script.first_token(name).finish(name, num_prompt=3).release(5, name).free(5)
        script.step_done(prefill=3, generated=1, blocks=(6, 0, 0))
    return script.events
