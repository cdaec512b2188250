"""Philox4x32-10 against its published vectors, and the uniforms made of it."""

import numpy as np
import pytest

from engine.sampling.randomness import philox4x32, uniforms


def words(*values: int) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value], dtype=np.uint64) for value in values)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_published_vector_is_reproduced(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = words(*counter)
    k0, k1 = words(*key)
    assert tuple(int(word[0]) for word in philox4x32((c0, c1, c2, c3), (k0, k1))) == expected


def test_uniforms_are_the_high_53_bits_of_two_words() -> None:
    assert uniforms([0], [0], [0])[0] == ((0x6627E8D5 << 21) | (0xE169C58D >> 11)) / 2**53


def test_uniforms_depend_on_every_argument_and_on_nothing_else() -> None:
    largest = 2**63 - 1
    draws = uniforms([7, 7, 8, 7, 7, largest], [0, 0, 0, 1, 0, largest], [5, 5, 5, 5, 6, largest])
    assert draws[0] == draws[1]
    assert len(set(draws.tolist())) == 5
    assert draws[4] == uniforms([7], [0], [6])[0]


def test_uniforms_over_positions_are_uniform() -> None:
    draws = uniforms([3] * 100_000, [0] * 100_000, range(100_000))
    assert draws.min() >= 0
    assert draws.max() < 1
    counts, _ = np.histogram(draws, bins=100, range=(0, 1))
    chi_square = ((counts - 1000.0) ** 2 / 1000.0).sum()
    assert chi_square < 148.2  # 99 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.015
