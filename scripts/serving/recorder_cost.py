"""What the events of one decode step take, in this process and with warm caches: to say them, and to record them."""

import statistics
import time
from collections.abc import Iterator

from engine.channel import FrameEncoder
from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.events import EventLog
from engine.execution.simulated_executor import hashed_tokens, scripted_runner
from engine.kv.block_manager import BlockManager
from engine.messages import StepOutput
from engine.quiet_events import QuietEventLog
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
    recorder = Recorder(clock, metrics=Metrics())
    spent: list[float] = []
    for message, _ in _steps(EventLog(clock), clock, num_streams):
        began = time.perf_counter()
        recorder.consume(message.events)
        spent.append(time.perf_counter() - began)
    return 1e6 * statistics.median(spent)


def events_us_per_step(num_streams: int) -> float:
    """Return what a step and its frame take more with every event than with those that a client needs, in microseconds.

    Medians over the steps of some running streams, the two engines in turn, step by step.
    """
    clock = ManualClock(1.0)
    encoder = FrameEncoder()
    spent: dict[str, list[float]] = {"on": [], "off": []}
    engines = {"on": EventLog(clock), "off": QuietEventLog(clock)}
    running = {name: _steps(events, clock, num_streams) for name, events in engines.items()}
    for number in range(NUM_STEPS):
        for name in ("on", "off") if number % 2 else ("off", "on"):
            message, step_s = next(running[name])
            began = time.perf_counter()
            encoder.encode(message)
            spent[name].append(step_s + time.perf_counter() - began)
    return 1e6 * (statistics.median(spent["on"]) - statistics.median(spent["off"]))


def _steps(events: EventLog, clock: ManualClock, num_streams: int) -> Iterator[tuple[StepOutput, float]]:
    """Yield each step's message, and the seconds that the step took."""
    config = SchedulerConfig(num_kv_blocks=num_streams * (NUM_STEPS // 16 + 2), max_num_seqs=num_streams)
    runner = scripted_runner(
        num_blocks=config.num_kv_blocks,
        block_size=config.block_size,
        script=hashed_tokens(VOCAB_SIZE),
        verify_kv=False,
    )
    core = EngineCore(Scheduler(config, BlockManager(config, events), events, ()), runner, events, clock)
    for number in range(num_streams):
        params = SamplingParams(max_tokens=NUM_STEPS, temperature=0.0, ignore_eos=True)
        core.add(EngineRequest(request_id=f"r{number}", prompt_token_ids=[number], params=params, arrival=clock.now()))
    while core.has_work:
        clock.advance(STEP_S)
        began = time.perf_counter()
        message = core.step()
        yield message, time.perf_counter() - began
