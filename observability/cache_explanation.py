"""Why a request found no more of its prompt in the prefix cache than it did, in a form for people.

The engine explains each lookup when it admits a request (engine/kv); here it becomes an answer. Token ids and positions
only: the text around them is a matter of the service, which has the tokenizer, and of `--log-content`.
"""

import msgspec

from engine.events import PrefixLookup

_SENTENCES = {
    "": "Everything that can be reused was.",
    "cold": "No cached prompt begins like this one.",
    "diverged": "The cache goes on with another token here.",
    "evicted": "The next block had been cached, and was evicted to make room.",
    "salt": "It is cached, under another salt.",
    "tail": "Only the last token, or a block that is not full, is missing.",
    "disabled": "The prefix cache was off, or can't be used for this request.",
}


class DivergenceText(msgspec.Struct, frozen=True, kw_only=True):
    """The divergence in words; only with `--log-content`.

    Attributes:
        before, after: text of this prompt around the position.
        expected, actual: text of the two tokens.
    """

    before: str
    expected: str
    actual: str
    after: str


class CacheDivergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cache holds something else.

    Attributes:
        position: of the first token that differs, from 0.
        block_number: which block of the prompt that is, from 0; -1 while the block size is unknown.
        block_id: the physical block that holds the other token.
        expected_token: what the cache holds there.
        actual_token: what this prompt has there.
        text: null without `--log-content`.
    """

    position: int
    block_number: int
    block_id: int
    expected_token: int
    actual_token: int
    text: DivergenceText | None = None


class CacheExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What admission found in the prefix cache.

    Attributes:
        num_prompt_tokens, num_matched_tokens: looked up and found.
        why: "" (all that can be reused was), `cold`, `diverged`, `evicted`, `salt`, `tail` or `disabled`.
        explanation: `why` as a sentence.
        divergence: null unless it diverged.
    """

    num_prompt_tokens: int
    num_matched_tokens: int
    why: str
    explanation: str
    divergence: CacheDivergence | None = None


def explain(lookup: PrefixLookup, *, block_size: int) -> CacheExplanation:
    """Return the explanation of a lookup.

    Args:
        lookup: what the engine said.
        block_size: tokens per block, 0 if unknown.
    """
    divergence = None
    if lookup.position >= 0:
        divergence = CacheDivergence(
            position=lookup.position,
            block_number=lookup.position // block_size if block_size else -1,
            block_id=lookup.block_id,
            expected_token=lookup.expected_token,
            actual_token=lookup.actual_token,
        )
    return CacheExplanation(
        num_prompt_tokens=lookup.num_prompt_tokens,
        num_matched_tokens=lookup.num_matched_tokens,
        why=lookup.why,
        explanation=_SENTENCES.get(lookup.why, lookup.why),
        divergence=divergence,
    )
