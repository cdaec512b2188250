"""What the recorder takes for the events of one decode step, in this process, on what it has in its caches."""

import statistics
import time

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.events import EventLog
from engine.execution.simulated_executor import hashed_tokens, scripted_runner
from engine.kv.block_manager import BlockManager
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest
from observability.metrics import Metrics
from observability.recorder import Recorder

NUM_STEPS = 1_000
STEP_S = 0.02
VOCAB_SIZE = 1_000


def recorder_us_per_step(num_streams: int) -> float:
    """Return the median over the steps of some running streams, blocks that fill up included, in microseconds."""
    clock = ManualClock(1.0)
    config = SchedulerConfig(num_kv_blocks=num_streams * (NUM_STEPS // 16 + 2), max_num_seqs=num_streams)
    events = EventLog(clock)
    runner = scripted_runner(
        num_blocks=config.num_kv_blocks,
        block_size=config.block_size,
        script=hashed_tokens(VOCAB_SIZE),
        verify_kv=False,
    )
    core = EngineCore(Scheduler(config, BlockManager(config, events), events, ()), runner, events, clock)
    recorder = Recorder(clock, metrics=Metrics())
    for number in range(num_streams):
        params = SamplingParams(max_tokens=NUM_STEPS, temperature=0.0, ignore_eos=True)
        core.add(EngineRequest(request_id=f"r{number}", prompt_token_ids=[number], params=params, arrival=clock.now()))
    spent: list[float] = []
    while core.has_work:
        clock.advance(STEP_S)
        message = core.step()
        began = time.perf_counter()
        recorder.consume(message.events)
        spent.append(time.perf_counter() - began)
    return 1e6 * statistics.median(spent)
