"""loadtest/window.py: the measured part of a closed loop."""

from loadtest.window import Window


def test_window_first_end_after_the_warm_up_opens_it() -> None:
    window = Window(100.0, warm_up_s=2.0, window_s=5.0, min_requests=1)
    window.request_ended(101.9)
    assert window.opened is None
    window.request_ended(102.5)
    assert (window.opened, window.closed) == (102.5, None)


def test_window_long_enough_but_with_too_few_ends_stays_open() -> None:
    window = Window(0.0, warm_up_s=0.0, window_s=5.0, min_requests=3)
    for now in (1.0, 2.0, 9.0):
        window.request_ended(now)
    assert window.closed is None
    window.request_ended(10.0)
    assert (window.opened, window.closed) == (1.0, 10.0)


def test_window_enough_ends_but_too_short_stays_open() -> None:
    window = Window(0.0, warm_up_s=0.0, window_s=5.0, min_requests=1)
    for now in (1.0, 2.0, 5.9):
        window.request_ended(now)
    assert window.closed is None
    window.request_ended(6.0)
    window.request_ended(7.0)
    assert window.closed == 6.0
