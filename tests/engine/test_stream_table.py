"""The table of streams: what is dropped, what ends, when it is empty."""

import asyncio

import pytest

from engine.errors import RequestFailedError
from engine.messages import ChoiceOutput
from engine.stream_table import StreamTable


def test_table_outputs_of_unknown_and_left_requests_are_dropped_and_counted() -> None:
    async def main() -> None:
        table = StreamTable()
        stream = table.open("left", 1)
        assert table.leave("left", stream)
        assert not table.leave("left", stream)
        table.take([ChoiceOutput(request_id="left"), ChoiceOutput(request_id="never sent")], [])
        assert (table.num_dropped_outputs, len(table)) == (2, 0)

    asyncio.run(main())


def test_table_request_ended_without_a_last_output_fails_instead_of_waiting_for_ever() -> None:
    async def main() -> None:
        table = StreamTable()
        stream = table.open("a", 2)
        table.take([ChoiceOutput(request_id="a", index=0, token_ids=[1], finish_reason="stop")], ["a"])
        assert [output.token_ids for output in await stream.take()] == [[1]]
        with pytest.raises(RequestFailedError, match="ended a without a last output"):
            await stream.take()
        assert len(table) == 0

    asyncio.run(main())


def test_table_leaving_does_not_touch_a_later_stream_of_the_same_id() -> None:
    async def main() -> None:
        table = StreamTable()
        first = table.open("a", 1)
        table.take([ChoiceOutput(request_id="a", finish_reason="stop")], ["a"])
        table.open("a", 1)
        assert not table.leave("a", first)
        assert "a" in table

    asyncio.run(main())


def test_table_wait_empty_returns_when_the_last_stream_is_over() -> None:
    async def main() -> None:
        table = StreamTable()
        await table.wait_empty()
        table.open("a", 1)
        waiting = asyncio.create_task(table.wait_empty())
        await asyncio.sleep(0)
        assert not waiting.done()
        table.take([ChoiceOutput(request_id="a", finish_reason="stop")], ["a"])
        await waiting

    asyncio.run(main())
