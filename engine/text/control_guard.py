"""ControlGuard: control tokens in a rendered prompt come from the template, never from what a user wrote.

A rendered prompt is one string, in which a user's `<|im_end|>` looks like the template's. So each string that comes
from outside is changed before rendering: one character that every control literal contains (its pivot, mostly `<`) is
replaced by a stand-in. The rendered text is cut at the control literals, which can only be the template's now, and the
stand-ins in the text between them are turned back.

A stand-in takes the place of one character, so lengths, slices, trimming and splitting in a template work as ever, and
whatever fragments a template joins, text from outside can't complete a literal. Stand-ins are lone surrogates: no valid
text holds one, so there is nothing to escape.
"""

from collections.abc import Mapping

from engine.text.tokenizer import literal_pattern, without_surrogates

_FIRST_STAND_IN = 0xDC00


class ControlGuard:
    """Protect text from outside, and find the control tokens in what was rendered with it.

    Args:
        literals: text of each control token -> its id.
    """

    def __init__(self, literals: Mapping[str, int]) -> None:
        self._literals = {text: token_id for text, token_id in literals.items() if text}
        pivots = sorted({_pivot(text) for text in self._literals})
        self._pairs = [(pivot, chr(_FIRST_STAND_IN + i)) for i, pivot in enumerate(pivots)]
        self._pattern = literal_pattern(frozenset(self._literals))

    def protect(self, text: str) -> str:
        """Return text from outside, with stand-ins; lone surrogates that it held become U+FFFD."""
        return self.stand_in(without_surrogates(text))

    def stand_in(self, text: str) -> str:
        """Return `text` with stand-ins for pivots; leaves stand-ins as they are, so it may be applied twice."""
        for pivot, stand_in in self._pairs:
            text = text.replace(pivot, stand_in)
        return text

    def restore(self, text: str) -> str:
        """Return `text` with the characters that the stand-ins stand for."""
        for pivot, stand_in in self._pairs:
            text = text.replace(stand_in, pivot)
        return text

    def restore_escapes(self, text: str) -> str:
        """Return JSON text in which a stand-in, written as an ASCII escape, stands as itself again."""
        for _, stand_in in self._pairs:
            text = text.replace(f"\\u{ord(stand_in):04x}", stand_in)
        return text

    def is_protected(self, text: str) -> bool:
        """Return whether `text` holds a stand-in."""
        return any(stand_in in text for _, stand_in in self._pairs)

    def has_literal(self, text: str) -> bool:
        return self._pattern is not None and self._pattern.search(text) is not None

    def segments(self, rendered: str) -> list[str | int]:
        """Cut a rendered prompt into control ids and plain text."""
        if self._pattern is None:
            return [self.restore(rendered)] if rendered else []
        pieces: list[str | int] = []
        for i, piece in enumerate(self._pattern.split(rendered)):
            if i % 2:
                pieces.append(self._literals[piece])
            elif piece:
                pieces.append(self.restore(piece))
        return pieces


def _pivot(literal: str) -> str:
    """Return the character by which a literal is broken: one that is rare in text where it has such."""
    return next((character for character in literal if not character.isalnum()), literal[0])
