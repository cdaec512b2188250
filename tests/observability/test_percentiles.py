import pytest

from observability.percentiles import min_samples, percentile, percentiles, rank


@pytest.mark.parametrize(("q", "needed"), [(50, 1), (25, 1), (75, 4), (90, 10), (95, 20), (99, 100), (99.9, 1000)])
def test_min_samples_above_the_median_leave_room_for_one_sample_beyond(q: float, needed: int) -> None:
    assert min_samples(q) == needed


@pytest.mark.parametrize(
    ("n", "q", "expected"), [(2, 50, 1), (3, 50, 2), (100, 99, 99), (101, 99, 100), (1000, 99.9, 999), (10, 90, 9)]
)
def test_rank_is_the_nearest_rank_counted_from_one(n: int, q: float, expected: int) -> None:
    assert rank(n, q) == expected


def test_percentile_is_one_of_the_samples() -> None:
    assert percentile([1.0, 2.0, 4.0, 8.0], 50) == 2.0
    assert percentile([1.0, 2.0, 4.0, 8.0], 75) == 4.0


def test_median_of_one_sample_is_that_sample() -> None:
    assert percentile([3.0], 50) == 3.0


def test_percentile_of_too_few_samples_is_none() -> None:
    assert percentile([], 50) is None
    assert percentile([float(i) for i in range(9)], 90) is None
    assert percentile([float(i) for i in range(99)], 99) is None
    assert percentile([float(i) for i in range(100)], 99) == 98.0


def test_percentiles_sort_the_samples_themselves() -> None:
    assert percentiles([3.0, 1.0, 2.0], (50, 99)) == {50: 2.0, 99: None}


@pytest.mark.parametrize("q", [0, 100, -1, 101])
def test_percentile_outside_of_0_to_100_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="`q` must be in"):
        percentile([1.0, 2.0], q)


def test_rank_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        rank(0, 50)
