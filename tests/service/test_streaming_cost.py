"""What a streamed token may cost the service, counted in calls and not in time: so it holds on any machine."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

from tests.support.http_calls import COMPLETIONS, completion
from tests.support.scripted_service import ScriptedCore, StepGate, emits, serve

NUM_TOKENS = 200
MAX_CALLS = 130  # measured 116, of Python functions a token, asyncio's and uvicorn's included
# Heartbeats, the supervisor, and the hand of the test on the service: they come with time, not with tokens.
SETTLING_CALLS = NUM_TOKENS // 4


class Calls:
    """Counts calls of Python functions on the thread that starts it, and tasks that are made."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    def start(self) -> None:
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self.by_name[f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_name}"] += 1


def test_streamed_token_costs_one_write_no_task_and_few_calls() -> None:
    gate, calls = StepGate(), Calls()
    gate.close()
    with (
        serve(core=ScriptedCore(emits(b"x" * (NUM_TOKENS + 20)), cues=[gate])) as served,
        served.streaming(COMPLETIONS, completion(max_tokens=NUM_TOKENS + 10)) as answer,
    ):

        def stream(num_tokens: int) -> None:
            for _ in range(num_tokens):
                gate.step()
                answer.read()

        stream(5)
        served.call(calls.start)
        stream(NUM_TOKENS)
        served.call(calls.stop)
        gate.open()
        answer.rest()
    by_name = calls.by_name
    assert NUM_TOKENS <= by_name["httptools_impl.py:send"] <= NUM_TOKENS + 1, "one write a token"
    assert by_name["base_events.py:create_task"] <= SETTLING_CALLS
    assert by_name["base_events.py:create_future"] <= SETTLING_CALLS
    assert sum(by_name.values()) / NUM_TOKENS <= MAX_CALLS, by_name.most_common(80)
