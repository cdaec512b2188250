"""Prompts of an exact number of tokens, cut from real text, no two alike."""

import random
from collections.abc import Sequence

HEAD = 8  # tokens in which any two prompts differ, so that no cached prefix of one serves another


class PromptSource:
    """Cuts prompts out of one long token sequence.

    Args:
        token_ids: of the text, by the tokenizer of the model under test.
        seed: equal seeds give equal prompts.
    """

    def __init__(self, token_ids: Sequence[int], *, seed: int) -> None:
        self._token_ids = token_ids
        self._random = random.Random(seed)
        self._used: set[tuple[int, ...]] = set()

    def take(self, num_tokens: int) -> list[int]:
        """Return the next prompt; raises ValueError when the text has no unused one of this length left."""
        last = len(self._token_ids) - num_tokens
        for _ in range(1000):
            if last < 0:
                break
            start = self._random.randint(0, last)
            head = tuple(self._token_ids[start : start + min(HEAD, num_tokens)])
            if head not in self._used:
                self._used.add(head)
                return list(self._token_ids[start : start + num_tokens])
        raise ValueError(f"the text ({len(self._token_ids)} tokens) has no unused prompt of {num_tokens} tokens left")

    def take_many(self, count: int, num_tokens: int, *, shared: int = 0) -> list[list[int]]:
        """Return `count` prompts of `num_tokens`, the first `shared` of them the same in all."""
        prefix = self.take(shared) if shared else []
        return [prefix + self.take(num_tokens - shared) for _ in range(count)]
