"""An engine process without a model: real scheduling and bookkeeping, scripted tokens, a step at fixed times.

Started by the service in place of `engine.process`, so that what the service costs can be measured alone.
PELLUCID_STEP_MS in its environment says how far apart the steps are.
"""

import os
import sys
import time
from collections.abc import Callable

from engine.build import scheduler_config
from engine.clock import Clock
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.engine_loop import SteppableCore
from engine.events import EngineStarted, EventLog
from engine.execution.executor import SamplingRow
from engine.execution.forward_batch import ForwardBatch
from engine.execution.simulated_executor import Cue, TokenScript, scripted_runner
from engine.garbage import settle_garbage_collector
from engine.kv.block_manager import BlockManager
from engine.messages import EngineInfo
from engine.model.load import load_model
from engine.process import main
from engine.quiet_events import QuietEventLog
from engine.scheduler import Scheduler
from engine.text.tokenizer import build_tokenizer
from loadtest.corpus import docstrings

STEP_MS = "PELLUCID_STEP_MS"
TEXT_CHARACTERS = 100_000


def paced(step_s: float) -> Cue:
    """Hold each step until `step_s` after the one before; one that comes late is not made up for."""
    next_at = time.perf_counter()

    def cue(_call: int, _batch: ForwardBatch) -> None:
        nonlocal next_at
        now = time.perf_counter()
        if now < next_at:
            time.sleep(next_at - now)
        next_at = max(now, next_at) + step_s

    return cue


def recited(ids: list[int]) -> TokenScript:
    """Emit real text, token by token, each sequence from another place of it."""

    def script(row: SamplingRow, _history: int) -> int:
        return ids[(row.position + 997 * row.seq.request.prompt_token_ids[0]) % len(ids)]

    return script


def build(config: EngineConfig, clock: Clock, _progress: Callable[[str], None]) -> tuple[SteppableCore, EngineInfo]:
    """Put a core around the script; the tokenizer is that of the configured model, whose weights are never read."""
    model = load_model(config.model)
    tokenizer = build_tokenizer(model.tokenizer)
    scheduling = scheduler_config(config, model.spec)
    events = EventLog(clock) if config.instruments else QuietEventLog(clock)
    runner = scripted_runner(
        num_blocks=scheduling.num_kv_blocks,
        block_size=scheduling.block_size,
        script=recited(tokenizer.encode("\n\n".join(docstrings(TEXT_CHARACTERS)))),
        cues=[paced(float(os.environ[STEP_MS]) / 1e3)],
        verify_kv=False,
    )
    eos_token_ids = tuple(sorted(tokenizer.eos_token_ids))
    scheduler = Scheduler(scheduling, BlockManager(scheduling, events), events, eos_token_ids)
    events.emit(
        EngineStarted,
        model=config.model,
        executor="scripted",
        block_size=scheduling.block_size,
        num_blocks=scheduling.num_kv_blocks,
        max_num_seqs=scheduling.max_num_seqs,
        max_num_batched_tokens=scheduling.max_num_batched_tokens,
        max_model_len=scheduling.max_request_tokens,
        prefix_cache=scheduling.prefix_cache,
    )
    info = EngineInfo(
        model=config.model,
        architecture=model.spec.architecture,
        num_parameters=0,
        dtype="none",
        executor="scripted",
        device="cpu",
        threads=1,
        vocab_size=model.spec.vocab_size,
        max_model_len=scheduling.max_request_tokens,
        block_size=scheduling.block_size,
        num_kv_blocks=scheduling.num_kv_blocks,
        kv_dtype="none",
        kv_cache_bytes=0,
        max_num_seqs=scheduling.max_num_seqs,
        max_num_batched_tokens=scheduling.max_num_batched_tokens,
        prefix_cache=scheduling.prefix_cache,
        overflow=scheduling.overflow,
        eos_token_ids=eos_token_ids,
        load_s=0.0,
    )
    settle_garbage_collector()
    return EngineCore(scheduler, runner, events, clock), info


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=build))
