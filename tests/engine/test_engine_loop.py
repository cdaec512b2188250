"""The engine's loop over a socket, driven from this thread where it can be, without sleeping."""

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from engine.channel import EngineChannel, FrameDecoder, FrameEncoder
from engine.clock import Clock, ManualClock, SystemClock
from engine.engine_loop import EngineLoop
from engine.events import EngineFailed, EngineStopped, RequestAborted, RequestFailed, RequestRejected
from engine.messages import (
    Abort,
    AddRequest,
    AnyFromEngine,
    AnyToEngine,
    CallResult,
    Configure,
    Fatal,
    Heartbeat,
    ResetPrefixCache,
    Shutdown,
    StepOutput,
)
from tests.support.async_engine import CONFIG, make_request
from tests.support.fake_core import REFUSED_TOKEN, FakeCore


class Service:
    """The other end of the loop's channel.

    Args:
        clock: the loop's.
        core: driven by the loop.
        heartbeat_s: the loop's.
    """

    def __init__(self, core: FakeCore, *, clock: Clock, heartbeat_s: float = 10.0) -> None:
        self.sock, self._theirs = socket.socketpair()
        self.loop = EngineLoop(core, EngineChannel(self._theirs), clock=clock, heartbeat_s=heartbeat_s)
        self._frames = FrameDecoder()
        self._received: list[AnyFromEngine] = []

    def send(self, *messages: AnyToEngine) -> None:
        self.sock.sendall(b"".join(FrameEncoder().encode(message) for message in messages))

    def receive(self) -> AnyFromEngine:
        """Return the next message, waiting for it."""
        self.sock.settimeout(10.0)
        while not self._received:
            for frame in self._frames.feed(self.sock.recv(1 << 20)):
                self._received.append(msgspec.msgpack.decode(frame, type=AnyFromEngine))
        return self._received.pop(0)

    def receive_all(self) -> list[AnyFromEngine]:
        """Return everything up to the end of the loop, which has run."""
        self._theirs.close()
        messages = list(self._received)
        while data := self.sock.recv(1 << 20):
            messages += [msgspec.msgpack.decode(f, type=AnyFromEngine) for f in self._frames.feed(data)]
        return messages

    def close(self) -> None:
        self.sock.close()
        self._theirs.close()


@pytest.fixture
def services() -> Iterator[list[Service]]:
    made: list[Service] = []
    yield made
    for service in made:
        service.close()


def make_service(services: list[Service], core: FakeCore, clock: Clock, heartbeat_s: float = 10.0) -> Service:
    services.append(Service(core, clock=clock, heartbeat_s=heartbeat_s))
    return services[-1]


def step_outputs(messages: list[AnyFromEngine]) -> list[StepOutput]:
    return [message for message in messages if isinstance(message, StepOutput)]


def test_loop_request_makes_one_message_a_step_with_outputs_and_events(services: list[Service]) -> None:
    clock = ManualClock()
    core = FakeCore(clock, lambda step: services[0].send(Shutdown(reason="")) if step == 3 else None)
    service = make_service(services, core, clock)
    service.send(AddRequest(request=make_request("a", n=2, max_tokens=3)))
    assert service.loop.run() == 0
    *steps, last = step_outputs(service.receive_all())
    assert [[(o.index, o.token_ids) for o in step.outputs] for step in steps] == [
        [(0, [0]), (1, [100])],
        [(0, [1]), (1, [101])],
        [(0, [2]), (1, [102])],
    ]
    assert [{event.step for event in step.events} for step in steps] == [{0, 1}, {2}, {3}]
    assert [type(event) for event in last.events] == [EngineStopped]


def test_loop_shutdown_aborts_what_runs_says_stopped_and_exits_0(services: list[Service]) -> None:
    clock = ManualClock()
    service = make_service(services, FakeCore(clock), clock)
    service.send(AddRequest(request=make_request("a", max_tokens=1_000_000)), Shutdown(reason="closed"))
    assert service.loop.run() == 0
    (last,) = step_outputs(service.receive_all())
    assert [(o.request_id, o.finish_reason) for o in last.outputs] == [("a", "abort")]
    assert [type(event) for event in last.events[-2:]] == [RequestAborted, EngineStopped]


def test_loop_refused_request_is_reported_without_a_step(services: list[Service]) -> None:
    clock = ManualClock()
    core = FakeCore(clock)
    service = make_service(services, core, clock)
    service.send(AddRequest(request=make_request("a", prompt=[REFUSED_TOKEN])))
    service.send(Shutdown(reason="closed"))
    assert service.loop.run() == 0
    messages = step_outputs(service.receive_all())
    outputs = [output for message in messages for output in message.outputs]
    assert [(o.finish_reason, o.error_type) for o in outputs] == [("error", "invalid_request_error")]
    assert sum(isinstance(event, RequestRejected) for message in messages for event in message.events) == 1
    assert core.num_steps == 0


def test_loop_abort_of_an_unknown_request_changes_nothing(services: list[Service]) -> None:
    clock = ManualClock()
    core = FakeCore(clock)
    core.collect()
    service = make_service(services, core, clock)
    service.send(Abort(request_id="never", reason="gone"))
    service.sock.shutdown(socket.SHUT_WR)
    assert service.loop.run() == 0
    assert service.receive_all() == []


def test_loop_call_is_answered_with_its_id(services: list[Service]) -> None:
    clock = ManualClock()
    service = make_service(services, FakeCore(clock), clock)
    service.send(ResetPrefixCache(call_id=41), ResetPrefixCache(call_id=42), Shutdown(reason=""))
    assert service.loop.run() == 0
    calls = [message for message in service.receive_all() if isinstance(message, CallResult)]
    assert calls == [CallResult(call_id=41, value=7), CallResult(call_id=42, value=7)]


def test_loop_step_that_raises_fails_its_requests_says_fatal_and_exits_1(
    services: list[Service], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    def fail_in_step_2(step: int) -> None:
        if step == 2:
            raise FloatingPointError("a kernel broke")

    service = make_service(services, FakeCore(clock, fail_in_step_2), clock)
    service.send(AddRequest(request=make_request("a", n=2, max_tokens=5)))
    assert service.loop.run() == 1
    *_, last, fatal = service.receive_all()
    assert isinstance(last, StepOutput)
    assert [(o.index, o.finish_reason, o.error_type) for o in last.outputs] == [
        (0, "error", "internal_error"),
        (1, "error", "internal_error"),
    ]
    assert [type(event) for event in last.events[-2:]] == [RequestFailed, EngineFailed]
    assert fatal == Fatal(error_type="internal_error", message="FloatingPointError: a kernel broke")
    assert "a kernel broke" in caplog.text


def test_loop_step_that_raises_with_nobody_to_hear_it_still_ends(
    services: list[Service], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    service: Service | None = None

    def leave_and_fail(step: int) -> None:
        assert service is not None
        service.close()
        raise FloatingPointError("a kernel broke")

    service = make_service(services, FakeCore(clock, leave_and_fail), clock)
    service.send(AddRequest(request=make_request("a")))
    assert service.loop.run() == 1
    assert "a kernel broke" in caplog.text


def test_loop_configure_while_running_is_a_fault_that_ends_it(
    services: list[Service], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    service = make_service(services, FakeCore(clock), clock)
    service.send(Configure(config=CONFIG))
    assert service.loop.run() == 1
    assert isinstance(service.receive_all()[-1], Fatal)


def test_loop_heartbeat_comes_between_steps_with_the_last_finished_step(services: list[Service]) -> None:
    clock = ManualClock()

    def take_time(step: int) -> None:
        clock.advance(0.4)
        if step == 9:
            services[0].send(Shutdown(reason=""))

    service = make_service(services, FakeCore(clock, take_time), clock, heartbeat_s=1.0)
    service.send(AddRequest(request=make_request("a", max_tokens=10)))
    assert service.loop.run() == 0
    beats = [message.step for message in service.receive_all() if isinstance(message, Heartbeat)]
    assert beats == [3, 6, 9]


def test_loop_idle_beats_at_its_interval(services: list[Service]) -> None:
    clock = SystemClock()
    core = FakeCore(clock)
    core.collect()
    service = make_service(services, core, clock, heartbeat_s=0.02)
    thread = threading.Thread(target=service.loop.run)
    thread.start()
    beats = [service.receive() for _ in range(4)]
    service.send(Shutdown(reason=""))
    thread.join(10.0)
    assert all(isinstance(beat, Heartbeat) and beat.step == 0 for beat in beats)
    times = [beat.t for beat in beats if isinstance(beat, Heartbeat)]
    assert all(later - earlier >= 0.02 for earlier, later in pairwise(times))
