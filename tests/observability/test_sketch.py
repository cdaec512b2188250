import random

import pytest

from observability.percentiles import percentile
from observability.sketch import Sketch


@pytest.mark.parametrize("q", [50, 90, 99])
def test_percentile_of_a_sketch_is_within_half_a_percent_of_the_exact_one(q: float) -> None:
    draw = random.Random(7)
    samples = [draw.lognormvariate(-4.0, 1.5) for _ in range(5_000)]
    sketch = Sketch()
    for sample in samples:
        sketch.add(sample)
    assert sketch.percentile(q) == pytest.approx(percentile(sorted(samples), q), rel=0.005)


def test_merged_sketches_answer_like_one_sketch_of_everything() -> None:
    parts, whole = [Sketch() for _ in range(3)], Sketch()
    for i in range(300):
        parts[i % 3].add(i / 100)
        whole.add(i / 100)
    merged = Sketch.merged(parts)
    assert merged.n == whole.n == 300
    assert [merged.percentile(q) for q in (50, 90, 99)] == [whole.percentile(q) for q in (50, 90, 99)]


def test_percentile_of_too_few_values_is_none() -> None:
    sketch = Sketch()
    sketch.add(0.1, 99)
    assert sketch.percentile(99) is None
    sketch.add(0.1)
    assert sketch.percentile(99) == pytest.approx(0.1, rel=0.005)


def test_values_of_zero_and_below_a_microsecond_count_as_zero() -> None:
    sketch = Sketch()
    for value in (0.0, 0.0, 0.0, 1.0):
        sketch.add(value)
    assert sketch.percentile(50) == 0.0
