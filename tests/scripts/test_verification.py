"""Which answers of an engine a comparison takes."""

import pytest

from loadtest.closed_loop import LoadRun
from loadtest.request_record import RequestRecord
from scripts.serving.verification import OutputsDifferError, check_answers
from scripts.serving.workloads import Workload

WORKLOAD = Workload("W", prompt_tokens=4, new_tokens=5, concurrencies=(1,))


def answer(text: str, num_tokens: int = 5) -> RequestRecord:
    return RequestRecord([1], 0.0, ended=1.0, text=text, num_output_tokens=num_tokens)


def answers(num_good: int, num_looping: int) -> list[LoadRun]:
    records = [answer("glass is clear because light")] * num_good + [answer("the the the the the")] * num_looping
    return [LoadRun(records, 0.0, 1.0, 0.0)]


@pytest.mark.parametrize(("num_good", "num_looping"), [(1, 0), (2, 2), (1, 8), (8, 2), (80, 20)])
def test_answers_of_which_few_loop_or_that_are_few_are_taken(num_good: int, num_looping: int) -> None:
    check_answers("engine", answers(num_good, num_looping), WORKLOAD)


@pytest.mark.parametrize(("num_good", "num_looping"), [(0, 1), (0, 9), (7, 3), (79, 21)])
def test_answers_that_all_loop_or_of_which_many_do_are_refused(num_good: int, num_looping: int) -> None:
    with pytest.raises(OutputsDifferError, match=f"{num_looping} of {num_good + num_looping} answers loop"):
        check_answers("engine", answers(num_good, num_looping), WORKLOAD)


def test_answers_of_another_length_or_none_are_refused() -> None:
    with pytest.raises(OutputsDifferError, match="4 tokens where 5 were asked for"):
        check_answers("engine", [LoadRun([answer("a b c d", 4)], 0.0, 1.0, 0.0)], WORKLOAD)
    with pytest.raises(OutputsDifferError, match="no request was completed"):
        check_answers("engine", [LoadRun([], 0.0, 1.0, 0.0)], WORKLOAD)
