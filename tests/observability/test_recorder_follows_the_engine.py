"""The recorder beside the real scheduler and block manager: what it says is what they hold, at every moment."""

import random
from collections import Counter

import pytest

from engine.events import EngineStarted, RequestTokens
from engine.sampling_params import SamplingParams
from observability.metrics import Metrics
from observability.recorder import Recorder
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import ScriptedEngine

NUM_BLOCKS = 24


class Observed:
    """A scripted engine with a recorder that has been told everything so far."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(
            num_blocks=NUM_BLOCKS, block_size=4, max_num_seqs=6, max_num_batched_tokens=24, check_every_event=False
        )
        self.metrics = Metrics()
        self.recorder = Recorder(self.engine.clock, metrics=self.metrics)
        self._num_told = 0
        born = EngineStarted(
            seq=0, t=0.0, step=0, model="m", executor="scripted", block_size=4, num_blocks=NUM_BLOCKS, max_num_seqs=6,
            max_num_batched_tokens=24, max_model_len=96, prefix_cache=True,
        )  # fmt: skip
        self.recorder.consume([born])

    def tell(self) -> None:
        self.recorder.consume(self.engine.events[self._num_told :])
        self._num_told = len(self.engine.events)

    def check(self) -> None:
        self.tell()
        gauges = self.recorder.stats(history_s=1)["gauges"]
        counts = self.engine.blocks.counts
        said = (gauges["kv"]["free"], gauges["kv"]["referenced"], gauges["kv"]["cached"])
        assert said == (counts.free, counts.referenced, counts.cached)
        scheduler = self.engine.scheduler
        running = {seq.request_id for seq in scheduler.running}
        waiting = {request_id for request_id, _ in scheduler.waiting_ids} - running
        assert (gauges["running"], gauges["waiting"]) == (len(running), len(waiting))


@pytest.mark.parametrize("seed", range(4))
def test_gauges_are_the_engines_own_counts_after_every_step_and_abort(seed: int) -> None:
    draw = random.Random(seed)
    observed = Observed()
    engine = observed.engine
    names: list[str] = []
    for number in range(40):
        shared = distinct_tokens(30, salt=draw.randrange(3))[: draw.randint(1, 30)]
        prompt = shared + distinct_tokens(draw.randint(1, 12), salt=100 + number)
        params = SamplingParams(max_tokens=draw.randint(1, 20), n=draw.choice([1, 1, 2, 3]))
        names.append(engine.add(prompt, params=params, priority=draw.choice([0, 0, 1])))
        observed.check()
        for _ in range(draw.randint(0, 4)):
            engine.step()
            observed.check()
        if draw.random() < 0.3:
            engine.abort(draw.choice(names))
            observed.check()
    for name in names:  # everybody leaves at once, and no further step is taken
        engine.abort(name)
    observed.check()

    gauges = observed.recorder.stats()["gauges"]
    assert (gauges["running"], gauges["waiting"], gauges["in_flight"], gauges["kv"]["referenced"]) == (0, 0, 0, 0)
    counters = observed.recorder.stats()["counters"]
    assert counters["requests_received"] == len(names)
    assert counters["requests_received"] == sum(
        counters[f"requests_{how}"] for how in ("finished", "aborted", "failed", "rejected")
    )
    assert counters["preemptions"] > 0, "the pool was never short: the workload proves too little"
    assert counters["events_dropped"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_token_counts_and_latency_counts_are_what_clients_got(seed: int) -> None:
    draw = random.Random(seed)
    observed = Observed()
    engine = observed.engine
    for number in range(30):
        prompt = distinct_tokens(draw.randint(1, 30), salt=number % 7)
        engine.add(prompt, params=SamplingParams(max_tokens=draw.randint(1, 12), n=draw.choice([1, 1, 2])))
        engine.step()
        observed.tell()
    engine.run(max_steps=3_000)
    observed.tell()

    got = Counter({choice: len(tokens) for choice, tokens in engine.outputs.items() if tokens})
    body = observed.metrics.render()[0].decode()
    scrape = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in body.splitlines() if line[0] != "#"}
    generated = sum(event.num_tokens for event in engine.events if isinstance(event, RequestTokens))
    assert scrape["pellucid_generated_tokens_total"] == generated == sum(got.values())
    assert scrape["pellucid_inter_token_latency_seconds_count"] == sum(got.values()) - len(got)
    assert scrape["pellucid_time_to_first_token_seconds_count"] == len({request_id for request_id, _ in got})
    ended = sum(value for name, value in scrape.items() if name.startswith("pellucid_requests_total"))
    assert scrape["pellucid_request_duration_seconds_count"] == ended == 30
    stages = sum(value for name, value in scrape.items() if name.startswith("pellucid_engine_stage_seconds_total"))
    steps = [step for step in observed.recorder.steps() if step["step"]]
    assert stages == pytest.approx(steps[-1]["t"] - steps[0]["started"])
