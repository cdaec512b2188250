"""The first line of a trace file: what the events need to be understood."""

from typing import Final, Literal

import msgspec

from engine.events import EngineStarted

SCHEMA_NAME: Final[Literal["pellucid-trace"]] = "pellucid-trace"
SCHEMA_VERSION: Final = 2  # 2: `life`, and a snapshot may stand before the events
MIN_SCHEMA_VERSION: Final = 1


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: what the events need to be understood.

    Attributes:
        schema, version: what kind of file this is: SCHEMA_NAME and MIN_SCHEMA_VERSION..SCHEMA_VERSION.
        model, executor, tokenizer: names, for display.
        block_size, num_blocks: the pool.
        max_num_seqs, max_num_batched_tokens, max_model_len, prefix_cache: the scheduler's settings.
        wall_origin_s: seconds since the Unix epoch when the monotonic clock stood at `monotonic_origin_s`.
        monotonic_origin_s: monotonic seconds; `t - monotonic_origin_s + wall_origin_s` dates an event.
        num_dropped_events: events of this engine's life that were lost, or left out, before the first one in this file.
        life: tells this engine process from every other one; "" if it isn't known.
    """

    schema: Literal["pellucid-trace"]
    version: int
    model: str
    executor: str = ""
    tokenizer: str = ""
    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    prefix_cache: bool
    wall_origin_s: float
    monotonic_origin_s: float
    num_dropped_events: int = 0
    life: str = ""


def header_of(
    started: EngineStarted,
    *,
    wall_origin_s: float,
    monotonic_origin_s: float,
    tokenizer: str = "",
    num_dropped_events: int = 0,
    life: str = "",
) -> TraceHeader:
    """Return the header for the events of the engine that said `started`; see TraceHeader for the arguments."""
    return TraceHeader(
        schema=SCHEMA_NAME,
        version=SCHEMA_VERSION,
        model=started.model,
        executor=started.executor,
        tokenizer=tokenizer,
        block_size=started.block_size,
        num_blocks=started.num_blocks,
        max_num_seqs=started.max_num_seqs,
        max_num_batched_tokens=started.max_num_batched_tokens,
        max_model_len=started.max_model_len,
        prefix_cache=started.prefix_cache,
        wall_origin_s=wall_origin_s,
        monotonic_origin_s=monotonic_origin_s,
        num_dropped_events=num_dropped_events,
        life=life,
    )
