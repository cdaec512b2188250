"""Frames and the engine's end of the channel."""

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.channel import ChannelClosedError, ChannelError, EngineChannel, FrameDecoder, FrameEncoder
from engine.messages import Abort, AddRequest, Heartbeat, Shutdown
from tests.support.async_engine import make_request


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, EngineChannel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, EngineChannel(theirs)


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(payloads=st.lists(st.binary(max_size=40), max_size=8), cuts=st.lists(st.integers(1, 9), min_size=1))
def test_decoder_stream_cut_anywhere_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    decoder, frames, at, i = FrameDecoder(), [], 0, 0
    while at < len(stream):
        size = cuts[i % len(cuts)]
        frames += decoder.feed(stream[at : at + size])
        at, i = at + size, i + 1
    assert frames == payloads
    assert decoder.num_pending_bytes == 0


def test_decoder_all_frames_at_once_come_in_order() -> None:
    assert FrameDecoder().feed(frame(b"a") + frame(b"") + frame(b"cc")) == [b"a", b"", b"cc"]


def test_decoder_half_a_frame_is_kept() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frame(b"abcd")[:6]) == []
    assert decoder.num_pending_bytes == 6
    assert decoder.feed(b"cd") == [b"abcd"]


def test_decoder_frame_over_the_limit_is_refused_by_its_header_alone() -> None:
    with pytest.raises(ChannelError, match="4294967295 bytes is over the limit of 10 bytes"):
        FrameDecoder(max_frame_bytes=10).feed(b"\xff\xff\xff\xff")


def test_encoder_message_over_the_limit_is_refused_and_the_next_one_is_whole() -> None:
    encoder = FrameEncoder(max_frame_bytes=30)
    with pytest.raises(ChannelError, match="over the limit of 30 bytes"):
        encoder.encode(Abort(request_id="a" * 100, reason=""))
    short = encoder.encode(Shutdown(reason="x"))
    assert len(FrameDecoder().feed(short)) == 1


def test_channel_receive_returns_everything_that_is_there_in_order(pair: tuple[socket.socket, EngineChannel]) -> None:
    sock, channel = pair
    encoder = FrameEncoder()
    messages = [Abort(request_id=f"r{i}", reason="gone") for i in range(50)]
    sock.sendall(b"".join(encoder.encode(message) for message in messages))
    assert channel.receive() == messages
    assert channel.receive() == []


def test_channel_receive_huge_prompt_in_pieces_arrives_whole(pair: tuple[socket.socket, EngineChannel]) -> None:
    sock, channel = pair
    message = AddRequest(request=make_request(prompt=range(200_000)))
    sender = threading.Thread(target=sock.sendall, args=(FrameEncoder().encode(message),))
    sender.start()
    received: list[object] = []
    while not received:
        received += channel.receive(timeout_s=5.0)
    sender.join()
    assert received == [message]


def test_channel_receive_after_the_service_closed_gives_what_it_sent_then_raises(
    pair: tuple[socket.socket, EngineChannel],
) -> None:
    sock, channel = pair
    sock.sendall(FrameEncoder().encode(Shutdown(reason="bye")))
    sock.close()
    assert channel.receive() == [Shutdown(reason="bye")]
    with pytest.raises(ChannelClosedError, match="closed the channel"):
        channel.receive()


def test_channel_receive_nothing_within_the_timeout_returns_nothing(
    pair: tuple[socket.socket, EngineChannel],
) -> None:
    assert pair[1].receive(timeout_s=0.001) == []


def test_channel_send_to_a_service_that_is_gone_raises(pair: tuple[socket.socket, EngineChannel]) -> None:
    sock, channel = pair
    sock.close()
    with pytest.raises(ChannelClosedError, match="the service is gone"):
        channel.send(Heartbeat(t=0.0, step=0))


def test_channel_message_that_does_not_decode_raises(pair: tuple[socket.socket, EngineChannel]) -> None:
    sock, channel = pair
    sock.sendall(frame(b"\x81\xa4type\xa7unknown"))
    with pytest.raises(ChannelError, match="doesn't decode"):
        channel.receive()
