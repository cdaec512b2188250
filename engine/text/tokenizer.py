"""Tokenizer: text to ids and back, for every kind of model file.

Special tokens come from two places only: the beginning-of-text id that the model asks for, and the control ids that a
chat template wrote. In all other text their literals are text.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from engine.errors import InvalidRequestError
from engine.model.tokenizer_source import (
    ByteTokenizerSource,
    GgufTokenizerSource,
    HuggingFaceTokenizerSource,
    TokenizerSource,
)
from engine.text.byte_tokenizer import byte_vocabulary
from engine.text.gguf_vocabulary import gguf_vocabulary
from engine.text.huggingface_vocabulary import huggingface_vocabulary
from engine.text.vocabulary import Vocabulary

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NOTHING: frozenset[str] = frozenset()


def without_surrogates(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate, which has no UTF-8 (JSON can carry one as an escape)."""
    return _LONE_SURROGATE.sub("�", text)


class Tokenizer:
    """Encode and decode. Immutable, safe to use from several threads.

    Attributes:
        description: kind and split rule, for model info.
        vocab_size: ids that have a text; a model may have more rows (padding), which decode to nothing.
        bos_token_id: None when the model has none.
        eos_token_ids: ids that end a text or a turn.
        adds_bos: raw prompts begin with BOS.
        drops_leading_space: SentencePiece: the space that encoding puts before the text is taken away by decoding.
        control_literals: text of each special token -> its id.
        user_defined_literals: text of tokens matched whole in any text -> id.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.description = vocabulary.description
        self.vocab_size = len(vocabulary.token_bytes)
        self.bos_token_id = vocabulary.bos_id
        self.eos_token_ids = vocabulary.eos_ids
        self.adds_bos = vocabulary.add_bos
        self.drops_leading_space = vocabulary.drops_leading_space
        self.control_literals = vocabulary.control_literals
        self.user_defined_literals = vocabulary.user_defined_literals
        self._vocabulary = vocabulary
        self._special_ids = frozenset(vocabulary.control_literals.values())
        self._whole_texts: dict[int, str | None] = {}  # of tokens that were asked for
        self._end = [] if vocabulary.appended_eos_id is None else [vocabulary.appended_eos_id]

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the ids of a raw text; literals of special tokens in it are text.

        With `add_special` the text gets BOS (and EOS) where the model says so. A text that already begins with the
        literal of a BOS that would be added doesn't get a second one. A byte that a byte-level vocabulary has no token
        for (control characters, in some models) gives nothing, as in the models' own tokenizers.
        """
        begin: list[int] = []
        if add_special and self.adds_bos and self.bos_token_id is not None:
            begin = [self.bos_token_id]
            text = text.removeprefix(self.token_text(self.bos_token_id))
        ids = begin + self._encode_text(text, at_start=True, as_text=_NOTHING)
        return ids + self._end if add_special else ids

    def encode_segments(self, segments: Iterable[str | int], *, as_text: frozenset[str] = _NOTHING) -> list[int]:
        """Return the ids of a prompt in pieces: control ids as numbers, everything else as plain text.

        Args:
            segments: in order; nothing is added before, between or after them.
            as_text: user-defined literals that are text here too.
        """
        vocabulary = self._vocabulary
        ids: list[int] = []
        pieces = list(segments)
        for i, piece in enumerate(pieces):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            before = pieces[i - 1] if i else None
            after = pieces[i + 1] if i + 1 < len(pieces) else None
            if isinstance(before, int) and before in vocabulary.strips_right:
                piece = piece.lstrip()
            if isinstance(after, int) and after in vocabulary.strips_left:
                piece = piece.rstrip()
            ids += self._encode_text(piece, at_start=i == 0, as_text=as_text)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return the exact bytes of one token, on its own; nothing for a padding row past the vocabulary."""
        assert token_id >= 0, f"token id {token_id} is negative"
        table = self._vocabulary.token_bytes
        return table[token_id] if token_id < len(table) else b""

    def token_text(self, token_id: int) -> str:
        """Return the text of one token on its own; a part of a character becomes U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def whole_text(self, token_id: int) -> str | None:
        """Return the text of one token if its bytes are whole characters, else None; remembered."""
        try:
            return self._whole_texts[token_id]
        except KeyError:
            text = self._whole_texts[token_id] = _decoded(self.token_bytes(token_id))
            return text

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True, is_continuation: bool = False) -> str:
        """Return the text of `ids`: their bytes joined, invalid UTF-8 replaced by U+FFFD.

        Args:
            skip_special_tokens: special tokens give no text.
            is_continuation: the text goes on after other text, so a leading space is kept in SentencePiece models.

        Raises:
            InvalidRequestError: an id is negative.
        """
        if any(token_id < 0 for token_id in ids):
            raise InvalidRequestError(f"token ids must be at least 0, got {min(ids)}", param="tokens")
        data = b"".join(
            self.token_bytes(token_id) for token_id in ids if not (skip_special_tokens and self.is_special(token_id))
        )
        if self.drops_leading_space and not is_continuation:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", errors="replace")

    def _encode_text(self, text: str, *, at_start: bool, as_text: frozenset[str]) -> list[int]:
        if not text:
            return []
        text = without_surrogates(text)
        encode_plain = self._vocabulary.encode_plain
        whole = self.user_defined_literals
        pattern = literal_pattern(frozenset(whole) - as_text) if whole else None
        if pattern is None:
            return encode_plain(text, at_start=at_start)
        ids: list[int] = []
        for i, piece in enumerate(pattern.split(text)):
            if i % 2:
                ids.append(whole[piece])
            elif piece:
                ids += encode_plain(piece, at_start=at_start and i == 0)
        return ids


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=64)
def literal_pattern(literals: frozenset[str]) -> re.Pattern[str] | None:
    """Return a pattern whose one group matches any of the literals, the longest first; None when there is none."""
    ordered = sorted((literal for literal in literals if literal), key=lambda literal: (-len(literal), literal))
    return re.compile("(" + "|".join(map(re.escape, ordered)) + ")") if ordered else None


def build_tokenizer(source: TokenizerSource) -> Tokenizer:
    """Build the tokenizer that a model file describes.

    Raises:
        ModelLoadError: its split rule, merges, scores or file can't be used; names the field.
    """
    match source:
        case GgufTokenizerSource():
            return Tokenizer(gguf_vocabulary(source))
        case HuggingFaceTokenizerSource():
            return Tokenizer(huggingface_vocabulary(source))
        case ByteTokenizerSource():
            return Tokenizer(byte_vocabulary(source))
