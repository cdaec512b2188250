"""The log that keeps to what the client needs: same outputs, the same ends, nothing else."""

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.events import EventLog, RequestArrived, RequestFinished
from engine.execution.simulated_executor import hashed_tokens, scripted_runner
from engine.kv.block_manager import BlockManager
from engine.quiet_events import NEEDED, QuietEventLog
from engine.scheduler import Scheduler
from tests.support.recorded_engine import request

CONFIG = SchedulerConfig(block_size=4, num_kv_blocks=12, max_num_seqs=3, max_num_batched_tokens=8)


def run(log: EventLog) -> tuple[list[object], list[type]]:
    """Return the outputs and the kinds of events of some requests that share, preempt and finish."""
    runner = scripted_runner(num_blocks=12, block_size=4, script=hashed_tokens(50), verify_kv=True)
    core = EngineCore(Scheduler(CONFIG, BlockManager(CONFIG, log), log), runner, log, ManualClock())
    for number in range(4):
        core.add(request(str(number), [1, 2, 3, 4, 5, number], 12))
    outputs: list[object] = []
    kinds: list[type] = []
    while core.has_work:
        step = core.step()
        outputs += [(o.request_id, list(o.token_ids), o.finish_reason) for o in step.outputs]
        assert [event.seq for event in step.events] == list(range(len(kinds) + 1, len(kinds) + 1 + len(step.events)))
        kinds += [type(event) for event in step.events]
    return outputs, kinds


def test_quiet_log_changes_no_output_and_keeps_exactly_what_the_client_needs() -> None:
    outputs, kinds = run(EventLog(ManualClock()))
    quiet_outputs, quiet_kinds = run(QuietEventLog(ManualClock()))

    assert quiet_outputs == outputs
    assert quiet_kinds == [kind for kind in kinds if kind in NEEDED]
    assert quiet_kinds.count(RequestArrived) == quiet_kinds.count(RequestFinished) == 4
    assert len(kinds) > 100
