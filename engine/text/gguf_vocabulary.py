"""Vocabularies out of GGUF metadata: byte-level BPE (`gpt2`) and SentencePiece (`llama`).

Control tokens never enter the merge model, so plain text can't become one whatever it spells.
"""

import re
from collections.abc import Sequence

from tokenizers import Tokenizer as MergeEngine
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer, Prepend, Replace
from tokenizers.normalizers import Sequence as Normalizers

from engine.errors import ModelLoadError
from engine.model.tokenizer_source import GgufTokenizerSource, TokenType
from engine.text.byte_alphabet import spelled_bytes
from engine.text.pretokenizers import split_rule
from engine.text.vocabulary import PlainEncoder, Vocabulary, with_end_literals

SPACE = "▁"  # U+2581, SentencePiece's space
BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")
_CONTROL_TYPES = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})


def gguf_vocabulary(source: GgufTokenizerSource) -> Vocabulary:
    """Build the vocabulary of a GGUF file.

    Raises:
        ModelLoadError: the split rule is not known, or merges and scores are both missing or don't fit the tokens.
    """
    if source.model == "gpt2":
        return _byte_level(source)
    return _sentencepiece(source)


def _byte_level(source: GgufTokenizerSource) -> Vocabulary:
    rule = split_rule(source.pre)
    if not source.merges:
        raise ModelLoadError("`tokenizer.ggml.merges` must list the merges of a `gpt2` tokenizer, found none")
    control = _control_ids(source)
    is_plain = [kind == TokenType.NORMAL and i not in control for i, kind in enumerate(source.token_types)]
    vocab = {token: i for i, token in enumerate(source.tokens) if is_plain[i]}
    merges = _merges_within(vocab, source)
    engine = MergeEngine(BPE(vocab=vocab, merges=merges, ignore_merges=rule.ignore_merges))
    engine.pre_tokenizer = rule.build()
    if rule.normalizer is not None:
        engine.normalizer = rule.normalizer()
    return _vocabulary(
        source,
        description=f"byte-level BPE, split rule {source.pre}",
        token_bytes=tuple(
            spelled_bytes(token) if is_plain[i] else token.encode("utf-8", errors="replace")
            for i, token in enumerate(source.tokens)
        ),
        encoder=plain_encoder(engine),
        literals=source.tokens,
        add_bos=rule.adds_bos if source.add_bos is None else source.add_bos,
        drops_leading_space=False,
    )


def _merges_within(vocab: dict[str, int], source: GgufTokenizerSource) -> list[tuple[str, str]]:
    """Return the merges whose parts and result are plain tokens; those that spell a special token are left out."""
    merges: list[tuple[str, str]] = []
    known: set[str] | None = None
    for rank, merge in enumerate(source.merges):
        left, _, right = merge.partition(" ")
        if left in vocab and right in vocab and left + right in vocab:
            merges.append((left, right))
            continue
        known = known or set(source.tokens)
        if not {left, right, left + right} <= known:
            raise ModelLoadError(
                f"`tokenizer.ggml.merges` entry {rank} must join two tokens to a token, found {merge!r}"
            )
    return merges


def _sentencepiece(source: GgufTokenizerSource) -> Vocabulary:
    if source.scores is None:
        raise ModelLoadError("`tokenizer.ggml.scores` must give the scores of a `llama` tokenizer, found none")
    kinds = source.token_types
    control = _control_ids(source)
    mergeable = {
        token: i
        for i, token in enumerate(source.tokens)
        if kinds[i] in (TokenType.NORMAL, TokenType.UNUSED) and i not in control
    }
    byte_ids = {token: i for i, token in enumerate(source.tokens) if kinds[i] == TokenType.BYTE}
    unknown = source.tokens[source.unk_id] if source.unk_id is not None else None
    vocab = mergeable | byte_ids
    if unknown is not None:
        vocab[unknown] = source.unk_id or 0
    merges = merges_from_scores(mergeable, source.scores)
    engine = MergeEngine(BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefixes_space = source.add_space_prefix is not False
    engine.normalizer = space_normalizer(prefixes_space)
    return _vocabulary(
        source,
        description="SentencePiece, merges by score" + ("" if prefixes_space else ", no space prefix"),
        token_bytes=tuple(piece_bytes(token, kinds[i] == TokenType.BYTE) for i, token in enumerate(source.tokens)),
        encoder=plain_encoder(engine),
        literals=tuple(token.replace(SPACE, " ") for token in source.tokens),
        add_bos=source.add_bos is not False,
        drops_leading_space=prefixes_space,
    )


def merges_from_scores(vocab: dict[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return every way to join two tokens to a third, in the order in which SentencePiece would.

    SentencePiece joins the neighbours whose joined token has the best score, the leftmost pair on a tie. A merge list
    sorted by that score says the same, but where two different tokens of equal score overlap.
    """
    ranked: list[tuple[float, int, int, int, str, str]] = []
    for token, token_id in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                ranked.append((-scores[token_id], token_id, vocab[left], vocab[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def space_normalizer(prefixes_space: bool) -> Normalizer:
    """Return the normalizer that writes U+2581 for each space, and one more before the text where asked."""
    spaces = Replace(" ", SPACE)
    return Normalizers([Prepend(SPACE), spaces]) if prefixes_space else spaces


def piece_bytes(piece: str, is_byte: bool) -> bytes:
    """Return the bytes of a SentencePiece token: `<0x0A>` where it is a byte, else its text with real spaces.

    Raises:
        ModelLoadError: a byte token is spelled in another way.
    """
    if is_byte:
        spelled = BYTE_PIECE.fullmatch(piece)
        if spelled is None:
            raise ModelLoadError(f"a byte token must be spelled like `<0x0A>`, found {piece[:20]!r}")
        return bytes.fromhex(spelled[1])
    return piece.replace(SPACE, " ").encode("utf-8", errors="replace")


def plain_encoder(engine: MergeEngine) -> PlainEncoder:
    """Wrap a merge engine that treats every place of the text alike."""

    def encode(text: str, /, *, at_start: bool) -> list[int]:
        del at_start
        return engine.encode(text, add_special_tokens=False).ids

    return encode


def _control_ids(source: GgufTokenizerSource) -> frozenset[int]:
    """Return the special ids; the named begin and end ids are special even in a file that forgot to mark them."""
    named = (source.bos_id, *source.eos_ids)
    marked = (i for i, kind in enumerate(source.token_types) if kind in _CONTROL_TYPES)
    return frozenset(marked) | {i for i in named if i is not None}


def _vocabulary(
    source: GgufTokenizerSource,
    *,
    description: str,
    token_bytes: tuple[bytes, ...],
    encoder: PlainEncoder,
    literals: tuple[str, ...],
    add_bos: bool,
    drops_leading_space: bool,
) -> Vocabulary:
    control = {literals[i]: i for i in sorted(_control_ids(source), reverse=True)}
    user_defined = {text: i for i, text in enumerate(literals) if source.token_types[i] == TokenType.USER_DEFINED}
    return Vocabulary(
        description=description,
        token_bytes=token_bytes,
        encode_plain=encoder,
        control_literals=control,
        user_defined_literals={text: i for text, i in user_defined.items() if text and text not in control},
        bos_id=source.bos_id,
        eos_ids=with_end_literals(source.eos_ids, control),
        add_bos=add_bos and source.bos_id is not None,
        appended_eos_id=source.eos_id if source.add_eos else None,
        drops_leading_space=drops_leading_space,
    )
