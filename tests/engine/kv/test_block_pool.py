import pytest

from engine.kv.block_pool import BlockPool


def test_fresh_pool_hands_out_blocks_in_order() -> None:
    pool = BlockPool(3)
    assert [pool.take(), pool.take(), pool.take()] == [0, 1, 2]
    assert (pool.num_free, pool.ref_counts) == (0, [1, 1, 1])


def test_take_from_an_empty_pool_raises() -> None:
    pool = BlockPool(1)
    pool.take()
    with pytest.raises(IndexError):
        pool.take()


def test_block_given_back_last_is_taken_first() -> None:
    pool = BlockPool(4)
    for _ in range(3):
        pool.take()
    for block_id in (1, 0):
        pool.release(block_id)
        pool.give_back(block_id)
    assert [pool.take() for _ in range(3)] == [0, 1, 3]


def test_references_are_counted_up_and_down() -> None:
    pool = BlockPool(1)
    block_id = pool.take()
    assert [pool.acquire(block_id), pool.acquire(block_id), pool.release(block_id), pool.release(block_id)] == [
        2,
        3,
        2,
        1,
    ]
    assert not pool.is_free(block_id)


def test_block_in_use_cannot_be_given_back() -> None:
    pool = BlockPool(1)
    pool.take()
    with pytest.raises(AssertionError, match="block 0 is freed with 1 references"):
        pool.give_back(0)


def test_block_cannot_be_freed_twice() -> None:
    pool = BlockPool(1)
    pool.release(pool.take())
    pool.give_back(0)
    with pytest.raises(AssertionError, match="block 0 was freed twice"):
        pool.give_back(0)


def test_reference_count_never_becomes_negative() -> None:
    pool = BlockPool(1)
    pool.release(pool.take())
    with pytest.raises(AssertionError, match="released more often than taken"):
        pool.release(0)


def test_free_block_cannot_be_shared() -> None:
    with pytest.raises(AssertionError, match="block 0 is free"):
        BlockPool(1).acquire(0)
