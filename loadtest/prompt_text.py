"""Prompts as text: real prose and code comments, cut to about as many tokens as asked for, no two alike."""

import functools
import random

from loadtest.corpus import docstrings
from loadtest.plan import SharedPrefix
from loadtest.planned_request import PlannedRequest
from loadtest.replay import BLOCK_TOKENS

CHARACTERS_PER_TOKEN = 4.0  # of English; a probe of the server under test says better
CORPUS_CHARACTERS = 200_000


@functools.cache
def corpus() -> str:
    """Return the text that prompts are cut from; reading it for the first time takes about half a second."""
    return "\n\n".join(docstrings(CORPUS_CHARACTERS))


class PromptText:
    """Writes the prompts of a plan.

    Args:
        text: to cut from, endlessly repeated.
        seed: equal seeds give equal prompts.
        shared: what prompts have in common.
        characters_per_token: of this text by the tokenizer of the model under test.
    """

    def __init__(self, text: str, *, seed: int, shared: SharedPrefix, characters_per_token: float) -> None:
        self._text = text
        self._seed = seed
        self._shared = shared
        self._characters_per_token = characters_per_token

    def write(self, request: PlannedRequest, *, stage: int = 0) -> str:
        """Return the prompt: its shared beginning, then text of its own, which starts with its own number."""
        length = self._characters(request.prompt_tokens)
        if request.hash_ids:
            blocks = (self._piece(f"block {each}", self._characters(BLOCK_TOKENS)) for each in request.hash_ids)
            return ("".join(blocks) + self._piece(f"rest {stage} {request.number}", length))[:length]
        num_shared = round(length * self._shared.share)
        beginning = self._piece(f"group {request.prefix_group}", num_shared)
        own = f"{stage}.{request.number}: " + self._piece(f"request {stage} {request.number}", length)
        return beginning + own[: length - num_shared]

    def _characters(self, num_tokens: int) -> int:
        return max(1, round(num_tokens * self._characters_per_token))

    def _piece(self, name: str, length: int) -> str:
        start = random.Random(f"{self._seed}/{name}").randrange(len(self._text))
        piece = self._text[start : start + length]
        while len(piece) < length:
            piece += self._text[: length - len(piece)]
        return piece
