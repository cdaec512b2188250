import random

import pytest

from engine.kv.sorted_keys import SortedKeys


def num_common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_neighbours_of_the_empty_set_are_none() -> None:
    assert SortedKeys().neighbours((1,)) == ()


def test_neighbours_are_the_next_on_both_sides() -> None:
    keys = SortedKeys()
    for key in ((5, 5), (1, 9), (3, 3)):
        keys.add(key)
    assert keys.neighbours((3, 1)) == ((1, 9), (3, 3))
    assert keys.neighbours((0,)) == ((1, 9),)
    assert keys.neighbours((9,)) == ((5, 5),)
    assert keys.neighbours((3, 3)) == ((1, 9), (3, 3))


@pytest.mark.parametrize("seed", range(3))
def test_a_neighbour_always_has_the_longest_common_beginning(seed: int) -> None:
    random_source = random.Random(seed)
    keys, plain = SortedKeys(), set[tuple[int, ...]]()
    for _ in range(3000):
        key = tuple(random_source.randrange(3) for _ in range(8))
        if key in plain and random_source.random() < 0.6:
            keys.remove(key)
            plain.remove(key)
        elif key not in plain:
            keys.add(key)
            plain.add(key)
        wanted = tuple(random_source.randrange(3) for _ in range(random_source.randrange(1, 9)))
        found = max((num_common(key, wanted) for key in keys.neighbours(wanted)), default=0)
        if random_source.random() < 0.02:
            assert found == max((num_common(key, wanted) for key in plain), default=0)
    for key in sorted(plain):
        keys.remove(key)
    assert not keys
