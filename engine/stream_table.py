"""The streams of all requests in flight, by request id."""

import asyncio
from collections.abc import Iterable, Iterator

from engine.errors import PellucidError, RequestFailedError
from engine.messages import ChoiceOutput
from engine.request_stream import RequestStream


class StreamTable:
    """Holds a stream from the moment its request is sent until its last output came or its consumer left.

    Attributes:
        num_dropped_outputs: outputs for requests that nobody waits for any more, or that were never sent.
    """

    def __init__(self) -> None:
        self.num_dropped_outputs = 0
        self._streams: dict[str, RequestStream] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._streams

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def open(self, request_id: str, num_choices: int) -> RequestStream:
        """Make the stream of a request that is not in flight yet."""
        assert request_id not in self._streams, request_id
        stream = self._streams[request_id] = RequestStream(num_choices)
        self._is_empty.clear()
        return stream

    def begin_abort(self, request_id: str) -> bool:
        """Note that a request is to be ended; return False when it is not in flight, or is to be ended already."""
        stream = self._streams.get(request_id)
        if stream is None or stream.is_aborting:
            return False
        stream.is_aborting = True
        return True

    def leave(self, request_id: str, stream: RequestStream) -> bool:
        """Cut a stream whose consumer is gone; return False when it was over already."""
        if self._streams.get(request_id) is not stream:
            return False
        stream.cut()
        self._forget(request_id)
        return True

    def take(self, outputs: Iterable[ChoiceOutput], ended: Iterable[str]) -> None:
        """Hand out one message's outputs; who listens is called once, with all of them in place.

        Args:
            outputs: at most one per choice; those that nobody waits for are dropped and counted.
            ended: ids of the requests whose terminal event came with the same message; their streams end with it.
        """
        streams = self._streams
        touched: dict[RequestStream, None] = {}
        for output in outputs:
            stream = streams.get(output.request_id)
            if stream is None or not stream.put(output):
                self.num_dropped_outputs += 1
                continue
            touched[stream] = None
            if output.finish_reason and stream.is_complete:
                self._forget(output.request_id)
        for stream in touched:
            stream.notify()
        for request_id in ended:
            stream = streams.get(request_id)
            if stream is not None:
                stream.fail(RequestFailedError(f"the engine ended {request_id} without a last output"))
                self._forget(request_id)

    def fail_all(self, error: PellucidError) -> int:
        """End every stream with an error; return how many there were."""
        streams = list(self._streams.values())
        self._streams.clear()
        self._is_empty.set()
        for stream in streams:
            stream.fail(error)
        return len(streams)

    async def wait_empty(self) -> None:
        await self._is_empty.wait()

    def _forget(self, request_id: str) -> None:
        del self._streams[request_id]
        if not self._streams:
            self._is_empty.set()
