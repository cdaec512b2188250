"""IncrementalDetokenizer: ids to text as they come, never half a character."""

import codecs
from collections.abc import Iterable

from engine.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Decode one output piece by piece; the pieces joined are `tokenizer.decode` of all its ids.

    The bytes of the tokens run through an incremental UTF-8 decoder, so a character made of several tokens appears when
    its last byte does, bytes that can't become one appear as U+FFFD at once, and what is unfinished at the end becomes
    U+FFFD in `finish`. Constant work per token; one instance per output.

    Args:
        skip_special_tokens: special tokens give no text.
        is_continuation: the text goes on after other text, so a leading space is kept in SentencePiece models.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True, is_continuation: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_between_characters = True
        self._drop_space = tokenizer.drops_leading_space and not is_continuation

    def push(self, token_ids: Iterable[int]) -> str:
        """Return the text that these tokens complete."""
        return "".join(map(self.push_one, token_ids))

    def push_one(self, token_id: int) -> str:
        """Return the text that this token completes, often nothing."""
        tokenizer = self._tokenizer
        if self._skip_special_tokens and tokenizer.is_special(token_id):
            return ""
        if self._is_between_characters and not self._drop_space:
            text = tokenizer.whole_text(token_id)
            if text is not None:
                return text
        data = tokenizer.token_bytes(token_id)
        if self._drop_space and data:
            self._drop_space = False
            data = data.removeprefix(b" ")
        text = self._decoder.decode(data)
        self._is_between_characters = not self._decoder.getstate()[0]
        return text

    def finish(self) -> str:
        """Return what the unfinished bytes at the end become, and begin anew."""
        self._is_between_characters = True
        return self._decoder.decode(b"", final=True)
