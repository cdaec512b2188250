"""Prompts of the last requests, kept in memory where the operator lets content into telemetry (`--log-content`)."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence

MAX_PROMPTS = 1_024
MAX_TOKENS = 4_000_000


class PromptLog:
    """Token ids by request id, bounded in requests and in tokens; the oldest go first.

    Args:
        is_kept: False keeps nothing.
    """

    def __init__(self, *, is_kept: bool = False) -> None:
        self._is_kept = is_kept
        self._prompts: OrderedDict[str, array[int]] = OrderedDict()
        self._num_tokens = 0

    def keep(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Remember a prompt."""
        if not self._is_kept:
            return
        self._prompts[request_id] = array("I", token_ids)
        self._num_tokens += len(token_ids)
        while len(self._prompts) > MAX_PROMPTS or self._num_tokens > MAX_TOKENS:
            self._num_tokens -= len(self._prompts.popitem(last=False)[1])

    def get(self, request_id: str) -> Sequence[int] | None:
        """Return a prompt, None if it isn't kept."""
        return self._prompts.get(request_id)
