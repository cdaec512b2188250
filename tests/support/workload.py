"""One seeded workload that meets every path of the scheduler and the block manager, with its outcome checked."""

import random

from engine.kv.block_manager import BlockManager
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from observability.trace_report import TraceReport
from tests.support.plain_model import distinct_tokens, solo_output
from tests.support.scripted_engine import ScriptedEngine


def run_workload(
    *,
    seed: int = 0,
    num_requests: int = 40,
    blocks_class: type[BlockManager] = BlockManager,
    scheduler_class: type[Scheduler] = Scheduler,
) -> TraceReport:
    """Run the workload and return the trace checker's report; see run_engine."""
    engine = run_engine(
        seed=seed, num_requests=num_requests, blocks_class=blocks_class, scheduler_class=scheduler_class
    )
    return engine.check_at_rest()


def run_engine(
    *,
    seed: int = 0,
    num_requests: int = 40,
    blocks_class: type[BlockManager] = BlockManager,
    scheduler_class: type[Scheduler] = Scheduler,
) -> ScriptedEngine:
    """Serve chats with shared and parting prefixes, forks, aborts and repeats in a pool that is far too small.

    Fails (AssertionError, or whatever the engine raises) when any output differs from its solo run, when any event
    breaks an invariant, or when something is left over.
    """
    engine = ScriptedEngine(
        num_blocks=24,
        block_size=4,
        max_num_seqs=6,
        max_num_batched_tokens=24,
        blocks_class=blocks_class,
        scheduler_class=scheduler_class,
    )
    draw = random.Random(seed)
    expected: dict[tuple[str, int], tuple[list[int], str]] = {}
    aborted: set[str] = set()
    prompts: list[list[int]] = []
    for number in range(num_requests):
        if prompts and draw.random() < 0.25:
            prompt = draw.choice(prompts)
        else:
            shared = distinct_tokens(30, salt=draw.randrange(3))[: draw.randint(1, 30)]
            prompt = shared + distinct_tokens(draw.randint(1, 12), salt=100 + number)
        prompts.append(prompt)
        params = SamplingParams(max_tokens=draw.randint(1, 20), n=draw.choice([1, 1, 2, 3]))
        name = engine.add(prompt, params=params, priority=draw.choice([0, 0, 1]))
        for index in range(params.n):
            expected[name, index] = solo_output(prompt, params, index=index)
        for _ in range(draw.randint(0, 4)):
            engine.step()
            engine.check_between_steps()
        if draw.random() < 0.2:
            victim = f"r{draw.randint(1, number + 1)}"
            aborted.add(victim)
            engine.abort(victim)
    engine.run(max_steps=num_requests * 60)
    for choice, (tokens, finish_reason) in expected.items():
        if choice[0] not in aborted:
            assert engine.outputs[choice] == tokens, choice
            assert engine.ends[choice] == finish_reason, choice
    engine.check_at_rest()
    return engine
