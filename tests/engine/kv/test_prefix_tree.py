import pytest

from engine.kv.prefix_tree import Divergence, PartialBlock, PrefixTree, TreeMatch

A, B, C, D = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12), (13, 14, 15, 16)


class Tree:
    """A tree of 4-token blocks over hand-set reference counts."""

    def __init__(self, num_blocks: int = 16) -> None:
        self.refs = [0] * num_blocks
        self.tree = PrefixTree(block_size=4, ref_counts=self.refs)

    def path(self, *blocks: tuple[tuple[int, ...], int], salt: str = "") -> None:
        """Insert (tokens, block) one below the other, and let go of the last."""
        parent = None
        for tokens, block_id in blocks:
            parent = self.tree.insert(salt=salt, parent=parent, tokens=tokens, block_id=block_id)
        if parent is not None:
            self.tree.touch(parent)

    def runs(self) -> list[tuple[int, ...]]:
        return sorted(blocks for _, _, _, blocks in self.tree.runs())

    def match(self, *tokens: int, salt: str = "") -> TreeMatch:
        return self.tree.match(salt, list(tokens))


def test_match_in_an_empty_tree_finds_nothing() -> None:
    assert Tree().match(*A) == TreeMatch([])


def test_blocks_without_a_branch_are_one_run() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1), (C, 2))
    assert tree.runs() == [(0, 1, 2)]
    assert tree.match(*A, *B, *C) == TreeMatch([0, 1, 2])
    assert len(tree.tree) == 3


def test_run_is_split_where_prompts_part() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1), (C, 2))
    tree.path((A, 0), (D, 3), (C, 4))
    assert tree.runs() == [(0,), (1, 2), (3, 4)]
    assert tree.match(*A, *B, *C).blocks == [0, 1, 2]
    assert tree.match(*A, *D, *C).blocks == [0, 3, 4]


def test_equal_content_is_not_inserted_twice() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    insert = tree.tree.insert
    assert insert(salt="", parent=None, tokens=A, block_id=7) == 0
    assert insert(salt="", parent=0, tokens=B, block_id=8) == 1
    assert (7 in tree.tree, 8 in tree.tree) == (False, False)


def test_match_ends_inside_a_block_of_a_run() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1), (C, 2))
    assert tree.match(*A, 5, 6, 0, 8) == TreeMatch([0], PartialBlock(1, 2), Divergence(6, 1, 7, 0))


def test_match_ends_inside_a_block_because_the_tokens_end() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    assert tree.match(*A, 5, 6, 7) == TreeMatch([0], PartialBlock(1, 3))


def test_match_ends_at_a_branch_with_the_nearest_child() -> None:
    tree = Tree()
    tree.path((A, 0), ((5, 6, 7, 8), 1))
    tree.path((A, 0), ((5, 6, 1, 1), 2))
    tree.path((A, 0), ((2, 2, 2, 2), 3))
    assert tree.match(*A, 5, 6, 7, 0) == TreeMatch([0], PartialBlock(1, 3), Divergence(7, 1, 8, 0))
    assert tree.match(*A, 5, 6, 1, 9).partial == PartialBlock(2, 3)
    assert tree.match(*A, 2, 2).partial == PartialBlock(3, 2)


def test_match_with_nothing_in_common_names_the_divergence_only() -> None:
    tree = Tree()
    tree.path((A, 4))
    assert tree.match(9, 9, 9, 9) == TreeMatch([], None, Divergence(0, 4, 1, 9))


def test_match_past_the_end_of_a_path_is_no_divergence() -> None:
    tree = Tree()
    tree.path((A, 0))
    assert tree.match(*A, *B) == TreeMatch([0])


def test_equal_tokens_after_different_beginnings_do_not_match() -> None:
    tree = Tree()
    tree.path((A, 0), (C, 1))
    tree.path((B, 2))
    assert tree.match(*B, *C).blocks == [2]


def test_salts_do_not_see_each_other() -> None:
    tree = Tree()
    tree.path((A, 0), salt="x")
    tree.path((A, 1), salt="y")
    assert tree.match(*A, salt="x").blocks == [0]
    assert tree.match(*A, salt="y").blocks == [1]
    assert tree.match(*A).blocks == []
    assert tree.tree.is_under_another_salt("", A)
    assert tree.tree.is_under_another_salt("x", A)
    assert not tree.tree.is_under_another_salt("", B)


def test_other_salt_is_forgotten_with_its_last_block() -> None:
    tree = Tree()
    tree.path((A, 0), salt="x")
    assert tree.tree.evict() == 0
    assert not tree.tree.is_under_another_salt("", A)


def test_eviction_takes_the_end_of_the_least_recently_used_run_first() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1), (C, 2))
    tree.path((D, 3))
    assert [tree.tree.evict() for _ in range(5)] == [2, 1, 0, 3, None]
    assert len(tree.tree) == 0


def test_use_moves_a_path_to_the_end_of_the_eviction_order() -> None:
    tree = Tree()
    tree.path((A, 0))
    tree.path((B, 1))
    tree.path((C, 2))
    tree.match(*A)
    assert [tree.tree.evict() for _ in range(3)] == [1, 2, 0]


def test_children_are_evicted_before_their_parent() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    tree.path((A, 0), (C, 2))
    assert [tree.tree.evict() for _ in range(4)] == [1, 2, 0, None]


def test_referenced_block_protects_its_ancestors() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    tree.path((A, 0), (C, 2))
    tree.refs[0] = tree.refs[2] = 1
    assert [tree.tree.evict() for _ in range(2)] == [1, None]
    tree.refs[0] = tree.refs[2] = 0
    tree.tree.touch(2)
    assert [tree.tree.evict() for _ in range(3)] == [2, 0, None]


def test_run_referenced_in_its_upper_part_is_evicted_down_to_there() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1), (C, 2))
    tree.refs[0] = 1
    assert [tree.tree.evict() for _ in range(3)] == [2, 1, None]
    assert tree.match(*A, *B).blocks == [0]


def test_evicted_block_is_not_found_and_can_hold_something_else() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    tree.tree.evict()
    assert tree.match(*A, *B) == TreeMatch([0])
    tree.path((D, 1))
    assert tree.match(*D).blocks == [1]


def test_block_in_use_cannot_be_removed() -> None:
    tree = Tree()
    tree.path((A, 0))
    tree.refs[0] = 1
    with pytest.raises(AssertionError, match="block 0 is in use"):
        tree.tree.remove_last(0)


def test_block_with_others_below_it_cannot_be_removed() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    with pytest.raises(AssertionError, match="block 0 has others below it"):
        tree.tree.remove_last(0)


def test_clear_returns_every_block_deepest_first() -> None:
    tree = Tree()
    tree.path((A, 0), (B, 1))
    tree.path((C, 2), salt="x")
    blocks = tree.tree.clear()
    assert blocks[0] == 1
    assert sorted(blocks) == [0, 1, 2]
    assert tree.match(*A) == TreeMatch([])
    assert tree.tree.evict() is None
