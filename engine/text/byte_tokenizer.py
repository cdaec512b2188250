"""The tokenizer of random weights: every byte is a token."""

from engine.model.tokenizer_source import ByteTokenizerSource
from engine.text.vocabulary import Vocabulary

_NUM_BYTES = 256


def byte_vocabulary(source: ByteTokenizerSource) -> Vocabulary:
    """Build the vocabulary that ByteTokenizerSource describes."""
    literals = {
        "<|bos|>": source.bos_id,
        "<|eos|>": source.eos_id,
        "<|im_start|>": source.turn_start_id,
        "<|im_end|>": source.turn_end_id,
    }
    named = set(literals.values())
    literals.update({f"<|unused{i}|>": i for i in range(_NUM_BYTES, source.vocab_size) if i not in named})
    texts = {token_id: text for text, token_id in literals.items()}
    specials = tuple(texts[i].encode() for i in range(_NUM_BYTES, source.vocab_size))
    return Vocabulary(
        description="bytes",
        token_bytes=(*(bytes([byte]) for byte in range(_NUM_BYTES)), *specials),
        encode_plain=_encode_bytes,
        control_literals=literals,
        bos_id=source.bos_id,
        eos_ids=frozenset(source.eos_ids),
        add_bos=source.add_bos,
    )


def _encode_bytes(text: str, /, *, at_start: bool) -> list[int]:
    del at_start  # no space prefix here
    return list(text.encode("utf-8"))
