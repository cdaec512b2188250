"""Random lives of requests: whatever the order, the books balance."""

import random

import pytest

from tests.support.event_script import Script


@pytest.mark.parametrize("seed", range(5))
def test_random_lives_balance_requests_tokens_and_blocks(seed: int) -> None:
    draw = random.Random(seed)
    script = Script()
    script.engine_started(num_blocks=256)
    live: dict[str, list[int]] = {}
    free = list(range(256))
    generated = prompt = 0
    for i in range(400):
        script.at(script.t + draw.random() * 0.05)
        if draw.random() < 0.4 and len(free) > 20:
            name = f"r{i}"
            through_service = draw.random() < 0.7
            if through_service:
                script.open(name, stream=draw.random() < 0.5)
            script.arrive(name, num_prompt_tokens=32)
            script.schedule(name, num_cached_tokens=16)
            script.chunk(name, 16, 16)
            prompt += 32
            live[name] = [free.pop() for _ in range(draw.randint(1, 4))]
            for block in live[name]:
                script.allocate(block, name)
        for name in draw.sample(list(live), min(3, len(live))):
            count = draw.randint(1, 3)
            script.tokens(name, count)
            generated += count
            if draw.random() < 0.3:
                script.recorder.sent_first(name, script.t)
        if live and draw.random() < 0.35:
            name = draw.choice(list(live))
            for block in live.pop(name):
                script.release(block, name)
                free.append(block)
            draw.choice((script.finish, script.abort))(name)
            script.recorder.sent_last(name, script.t)
        if i % 10:
            continue
        stats = script.recorder.stats()
        counters, gauges = stats["counters"], stats["gauges"]
        ended = sum(counters[f"requests_{how}"] for how in ("finished", "aborted", "failed", "rejected"))
        assert counters["requests_received"] == ended + gauges["in_flight"]
        assert gauges["in_flight"] == gauges["running"] == len(live)
        assert counters["generated_tokens"] == generated
        assert counters["prompt_tokens_computed"] + counters["prompt_tokens_cached"] == prompt
        assert gauges["kv"]["free"] == len(free)
        assert gauges["kv"]["free"] + gauges["kv"]["referenced"] + gauges["kv"]["cached"] == 256
    scrape = script.scrape()
    ended = sum(value for name, value in scrape.items() if name.startswith("pellucid_requests_total"))
    assert scrape["pellucid_request_duration_seconds_count"] == ended
    views = [script.recorder.request(row["request_id"]) for row in script.recorder.requests()["recent"]]
    produced = [view for view in views if view is not None and view["num_output_tokens"]]
    live_views = [script.recorder.request(name) for name in live]
    waiting_for_transport = [
        view for view in live_views if view is not None and view["stream"] and view["stamps"]["sent_first_s"] is None
    ]
    live_produced = [
        v for v in live_views if v is not None and v["num_output_tokens"] and v not in waiting_for_transport
    ]
    assert scrape["pellucid_time_to_first_token_seconds_count"] == len(produced) + len(live_produced)
    num_firsts = sum(1 for v in [*views, *live_views] if v is not None and v["num_output_tokens"])
    assert scrape["pellucid_inter_token_latency_seconds_count"] == generated - num_firsts
