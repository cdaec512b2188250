"""What the recorder is told of writes: those that a slow reader held up; and when the last byte was out."""

import pytest

from service.delivery import Delivery
from tests.support.event_script import Script


@pytest.fixture
def script() -> Script:
    script = Script()
    script.engine_started()
    for request_id in ("a", "b"):
        script.open(request_id)
        script.arrive(request_id)
    return script


def test_slow_write_is_counted_once_and_kept_with_each_request_of_the_call(script: Script) -> None:
    delivery = Delivery(script.recorder, ["a", "b"])
    delivery.wrote(101.0, 103.5, is_last=False)
    assert script.scrape()["pellucid_send_blocked_seconds_total"] == 2.5
    for request_id in ("a", "b"):
        view = script.recorder.request(request_id)
        assert view is not None
        assert view["attribution"]["beside"]["send_blocked_s"] == 2.5
        assert view["attribution"]["causes"]["send"] == 0, "the engine was still at work"


def test_ordinary_write_is_not_blocking(script: Script) -> None:
    Delivery(script.recorder, ["a"]).wrote(101.0, 101.0009, is_last=False)
    assert script.scrape()["pellucid_send_blocked_seconds_total"] == 0


def test_answer_is_complete_with_its_last_write(script: Script) -> None:
    delivery = Delivery(script.recorder, ["a"])
    delivery.wrote(101.0, 101.0001, is_last=False)
    assert delivery.completed is None
    delivery.wrote(101.2, 101.2001, is_last=True)
    assert delivery.completed == 101.2001
