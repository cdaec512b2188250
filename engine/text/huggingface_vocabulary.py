"""Vocabularies out of a Hugging Face `tokenizer.json`, read by the `tokenizers` library.

The library matches added tokens in any text. Here they are taken out of its hands, control tokens out of its
vocabulary too, so plain text can't become one whatever it spells.
"""

import json
from typing import Any

from tokenizers import Tokenizer as MergeEngine

from engine.errors import ModelLoadError
from engine.model.tokenizer_source import HuggingFaceTokenizerSource
from engine.text.byte_alphabet import spelled_bytes
from engine.text.gguf_vocabulary import BYTE_PIECE, piece_bytes
from engine.text.vocabulary import PlainEncoder, Vocabulary, with_end_literals

Json = dict[str, Any]


def huggingface_vocabulary(source: HuggingFaceTokenizerSource) -> Vocabulary:
    """Build the vocabulary of a `tokenizer.json`.

    Raises:
        ModelLoadError: the file is not one, or its model is not BPE.
    """
    document = _read(source)
    model: Json = document["model"]
    added: list[Json] = document.get("added_tokens") or []
    control = {token["content"]: int(token["id"]) for token in added if token.get("special")}
    user_defined = {token["content"]: int(token["id"]) for token in added if not token.get("special")}
    pieces: dict[str, int] = model["vocab"]
    is_byte_level = _mentions(document.get("pre_tokenizer"), "ByteLevel") or _mentions(
        document.get("decoder"), "ByteLevel"
    )
    token_bytes = _token_bytes(pieces, added, is_byte_level=is_byte_level)
    bos_id = source.bos_id if source.bos_id is not None else control.get(source.bos_token or "")
    add_bos = source.add_bos if source.add_bos is not None else _post_processor_adds(document, bos_id)
    drops_leading_space = not is_byte_level and _adds_leading_space(document)
    return Vocabulary(
        description="tokenizer.json, " + ("byte-level BPE" if is_byte_level else "BPE with byte fallback"),
        token_bytes=token_bytes,
        encode_plain=_encoder(_without_added_tokens(document, {*control, *user_defined})),
        control_literals=control,
        user_defined_literals=user_defined,
        bos_id=bos_id,
        eos_ids=with_end_literals(source.eos_ids, control),
        add_bos=add_bos and bos_id is not None,
        drops_leading_space=drops_leading_space,
        strips_left=frozenset(int(token["id"]) for token in added if token.get("lstrip")),
        strips_right=frozenset(int(token["id"]) for token in added if token.get("rstrip")),
    )


def _read(source: HuggingFaceTokenizerSource) -> Json:
    try:
        document = json.loads(source.tokenizer_json.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"`{source.tokenizer_json}` must be a readable JSON file: {error}") from error
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise ModelLoadError(f"`model` of {source.tokenizer_json} must be an object with a `vocab` object")
    if model.get("type", "BPE") != "BPE":
        raise ModelLoadError(f"`model.type` of {source.tokenizer_json} must be BPE, found {model['type']!r}")
    assert isinstance(document, dict)
    return document


def _token_bytes(pieces: dict[str, int], added: list[Json], *, is_byte_level: bool) -> tuple[bytes, ...]:
    ids = [*pieces.values(), *(int(token["id"]) for token in added)]
    table = [b""] * (max(ids, default=-1) + 1)
    for piece, token_id in pieces.items():
        is_byte = BYTE_PIECE.fullmatch(piece) is not None
        table[token_id] = spelled_bytes(piece) if is_byte_level else piece_bytes(piece, is_byte)
    for token in added:
        table[int(token["id"])] = token["content"].encode("utf-8", errors="replace")
    return tuple(table)


def _without_added_tokens(document: Json, literals: set[str]) -> Json:
    """Return the document without added tokens, post-processor, truncation and padding.

    The unknown token stays in the vocabulary, because the library needs it there; no merge leads to it.
    """
    model: Json = document["model"]
    barred = literals - {model.get("unk_token")}
    merges = [tuple(m.split(" ", 1)) if isinstance(m, str) else tuple(m) for m in model.get("merges", [])]
    kept = [(a, b) for a, b in merges if a not in literals and b not in literals and a + b not in literals]
    vocab = {piece: token_id for piece, token_id in model["vocab"].items() if piece not in barred}
    plain_model = model | {"vocab": vocab, "merges": kept}
    removed: Json = {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return document | removed | {"model": plain_model}


def _encoder(document: Json) -> PlainEncoder:
    at_start_engine = _engine(document)
    pre_tokenizer = document.get("pre_tokenizer")
    if not _mentions(pre_tokenizer, "first", key="prepend_scheme"):
        return lambda text, /, *, at_start: at_start_engine.encode(text, add_special_tokens=False).ids
    # Metaspace with `first` puts a space before the whole prompt only, and each engine sees one piece of it.
    inner_engine = _engine(document | {"pre_tokenizer": _without_prefix(pre_tokenizer)})

    def encode(text: str, /, *, at_start: bool) -> list[int]:
        engine = at_start_engine if at_start else inner_engine
        return engine.encode(text, add_special_tokens=False).ids

    return encode


def _engine(document: Json) -> MergeEngine:
    try:
        return MergeEngine.from_str(json.dumps(document, ensure_ascii=False))
    except Exception as error:  # the library raises nothing narrower
        raise ModelLoadError(f"`tokenizer.json` can't be used: {error}") from error


def _mentions(part: object, value: str, *, key: str = "type") -> bool:
    """Return whether `part`, or any object inside it, has `key` equal to `value`."""
    if isinstance(part, dict):
        return part.get(key) == value or any(_mentions(inner, value, key=key) for inner in part.values())
    if isinstance(part, list):
        return any(_mentions(inner, value, key=key) for inner in part)
    return False


def _without_prefix(part: Any) -> Any:
    if isinstance(part, dict):
        changed = {name: _without_prefix(inner) for name, inner in part.items()}
        return changed | {"prepend_scheme": "never"} if "prepend_scheme" in changed else changed
    if isinstance(part, list):
        return [_without_prefix(inner) for inner in part]
    return part


def _adds_leading_space(document: Json) -> bool:
    if _mentions(document.get("normalizer"), "Prepend"):
        return True
    pre_tokenizer = document.get("pre_tokenizer")
    return any(_mentions(pre_tokenizer, scheme, key="prepend_scheme") for scheme in ("first", "always"))


def _post_processor_adds(document: Json, bos_id: int | None) -> bool:
    """Return whether the post-processor's template for one text begins with BOS."""
    processor = document.get("post_processor")
    steps = processor.get("processors", [processor]) if isinstance(processor, dict) else []
    bos_literals = {token["content"] for token in document.get("added_tokens") or [] if token["id"] == bos_id}
    for step in steps:
        if step.get("type") == "TemplateProcessing" and step.get("single"):
            first = step["single"][0].get("SpecialToken", {})
            return first.get("id") in bos_literals
    return False
