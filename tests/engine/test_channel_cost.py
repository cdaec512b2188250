"""What the channel costs per step: encode, send, receive, decode, hand over to the streams."""

import socket
import time
from collections.abc import Callable

import msgspec
import pytest

from engine.channel import FrameDecoder, FrameEncoder
from engine.clock import ManualClock
from engine.event_ledger import EventLedger
from engine.events import BlockAllocated, BlockPublished, EventLog, RequestTokens, StepStarted
from engine.messages import AnyArrival, ChoiceOutput, SealedStep, StepOutput
from engine.packed_events import PackedEvents
from engine.request_stream import RequestStream
from tests.support.async_engine import make_request


def decode_step(num_seqs: int) -> StepOutput:
    """Return the message of a decode step: a token for each sequence, every 16th one fills a block."""
    log = EventLog(ManualClock())
    log.emit(StepStarted, num_waiting=0, num_running=num_seqs)
    outputs = []
    for i in range(num_seqs):
        request_id = f"req-{i:016x}"
        if i % 16 == 0:
            log.emit(
                BlockPublished,
                block_id=i,
                parent_block_id=i + 1,
                block_hash="a" * 16,
                parent_hash="b" * 16,
                request_id=request_id,
            )
            log.emit(BlockAllocated, block_id=i + 2, request_id=request_id, index=0, position=3)
        log.emit(RequestTokens, request_id=request_id, index=0, num_tokens=1, num_output_tokens=77)
        outputs.append(ChoiceOutput(request_id=request_id, token_ids=[12345]))
    return StepOutput.of(outputs, log.drain())


def cpu_us_per_call(call: Callable[[], None], *, num_calls: int) -> float:
    """Return the least CPU time of a call over some rounds, in microseconds: other people's load doesn't count."""
    rounds = []
    for _ in range(7):
        started = time.thread_time()
        for _ in range(num_calls):
            call()
        rounds.append((time.thread_time() - started) / num_calls * 1e6)
    return min(rounds)


@pytest.mark.alone
@pytest.mark.parametrize(("num_seqs", "num_calls"), [(1, 500), (32, 200), (256, 30)])
def test_channel_step_of_many_sequences_costs_little(num_seqs: int, num_calls: int) -> None:
    message = decode_step(num_seqs)
    ours, theirs = socket.socketpair()
    encoder, frames = FrameEncoder(), FrameDecoder()
    decoder = msgspec.msgpack.Decoder(AnyArrival)
    ledger = EventLedger(ManualClock())
    streams = {output.request_id: RequestStream(1) for output in message.outputs}
    for output in message.outputs:
        ledger.sent(make_request(output.request_id))

    def cross() -> None:
        data = encoder.encode(message)
        theirs.sendall(data)
        received: list[bytes] = []
        while not received:
            received = frames.feed(ours.recv(1 << 18))
        arrived = decoder.decode(received[0])
        assert isinstance(arrived, SealedStep)
        ledger.seen(PackedEvents(arrived.events), arrived.ended)
        for output in arrived.outputs:
            streams[output.request_id].put(output)

    with ours, theirs:
        cost_us = cpu_us_per_call(cross, num_calls=num_calls)
    assert cost_us < 3 * (60 + 3 * num_seqs), f"{cost_us:.1f} us per step of {num_seqs} sequences"
