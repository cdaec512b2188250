"""Numbers in query strings."""

import pytest
from starlette.requests import Request

from engine.errors import InvalidRequestError
from service.query import MAX_NUMBER, query_number


def asked(query: str, **bounds: int) -> int:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    return query_number(request, "limit", default=7, **bounds)


@pytest.mark.parametrize(
    ("query", "number"),
    [("", 7), ("limit=", 7), ("other=3", 7), ("limit=0", 0), ("limit=003", 3), (f"limit={MAX_NUMBER}", MAX_NUMBER)],
)
def test_query_number_that_is_one_or_not_given_is_taken(query: str, number: int) -> None:
    assert asked(query) == number


@pytest.mark.parametrize(
    "text", ["-1", "%2B1", "1.5", "1e3", "0x10", "1_0", "NaN", "%D9%A3", "%C2%B2", "%00", "+5", "9" * 19, "9" * 5000]
)
def test_query_number_that_is_none_is_refused_by_name_and_shown_in_short(text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        asked(f"limit={text}")
    assert refused.value.param == "limit"
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("text", ["0", "11", "0000000000011", "0000000000000000000000000005"])
def test_query_number_outside_its_range_is_refused_however_it_is_written(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"`limit` must lie in 1\.\.10"):
        asked(f"limit={text}", low=1, high=10)
