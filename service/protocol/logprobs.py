"""Log probabilities as the two APIs spell them; every token is decoded on its own, with its own bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.messages import LogprobEntry, TokenLogprobs

LOWEST_LOGPROB = -9999.0  # JSON has no -Infinity; OpenAI's own stand-in for "impossible"


class TokenTexts(Protocol):
    """The part of a tokenizer that spells single tokens."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class TokenSpelling:
    """Spells tokens; `skip_special` says that special tokens give no text, so they have no bytes of it."""

    tokenizer: TokenTexts
    skip_special: bool

    def text(self, token_id: int) -> str:
        """Return the token as text, or as `bytes:\\xf0\\x9f` when it holds only a part of a character."""
        data = self.tokenizer.token_bytes(token_id)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def bytes_of_text(self, token_id: int) -> list[int]:
        """Return the bytes that the token adds to the text."""
        if self.skip_special and self.tokenizer.is_special(token_id):
            return []
        return list(self.tokenizer.token_bytes(token_id))

    def chat_entry(self, entry: LogprobEntry) -> dict[str, Any]:
        return {
            "token": self.text(entry.token_id),
            "logprob": finite(entry.logprob),
            "bytes": self.bytes_of_text(entry.token_id),
        }

    def chat_entries(self, entries: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
        """Return `logprobs.content` of a chat choice."""
        return [
            {**self.chat_entry(entry.chosen), "top_logprobs": [self.chat_entry(top) for top in entry.top]}
            for entry in entries
        ]

    def prompt_entries(self, entries: Sequence[TokenLogprobs]) -> list[dict[str, Any] | None]:
        """Return `prompt_logprobs`: null for the first position, then token id -> log probability and text."""
        return [None, *map(self._prompt_entry, entries)]

    def _prompt_entry(self, entry: TokenLogprobs) -> dict[str, Any]:
        return {
            str(one.token_id): {"logprob": finite(one.logprob), "decoded_token": self.text(one.token_id)}
            for one in (entry.chosen, *entry.top)
        }


class CompletionLogprobs:
    """Gathers the four parallel arrays of the old API's `logprobs` for one choice."""

    def __init__(self, spelling: TokenSpelling) -> None:
        self._spelling = spelling
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._top: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, entry: TokenLogprobs, *, text_offset: int) -> None:
        """Add an output or prompt token that has a log probability; it stands among the alternatives too."""
        chosen = entry.chosen
        self._append(self._spelling.text(chosen.token_id), finite(chosen.logprob), text_offset)
        ranked = entry.top if any(top.token_id == chosen.token_id for top in entry.top) else [*entry.top, chosen]
        self._top.append({self._spelling.text(one.token_id): finite(one.logprob) for one in ranked})

    def add_first(self, token_id: int, *, text_offset: int) -> None:
        """Add the prompt's first token, which nothing predicts."""
        self._append(self._spelling.text(token_id), None, text_offset)
        self._top.append(None)

    def take(self) -> dict[str, Any]:
        """Return the arrays and begin anew."""
        taken = {
            "tokens": self._tokens,
            "token_logprobs": self._logprobs,
            "top_logprobs": self._top,
            "text_offset": self._offsets,
        }
        self._tokens, self._logprobs, self._top, self._offsets = [], [], [], []
        return taken

    def _append(self, token: str, logprob: float | None, text_offset: int) -> None:
        self._tokens.append(token)
        self._logprobs.append(logprob)
        self._offsets.append(text_offset)


def finite(logprob: float) -> float:
    """Return a log probability that JSON can carry."""
    return max(logprob, LOWEST_LOGPROB)
