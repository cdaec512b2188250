"""The printable alphabet in which byte-level BPE vocabularies spell bytes (GPT-2, `bytes_to_unicode`)."""


def _byte_to_character() -> dict[int, str]:
    """Give each printable Latin-1 byte itself, and every other byte the next character from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet.update({byte: chr(0x100 + offset) for offset, byte in enumerate(others)})
    return alphabet


BYTE_TO_CHARACTER: dict[int, str] = _byte_to_character()
# Every character of the alphabet lies below U+0144. Other characters are left alone by str.translate and show up as
# characters beyond Latin-1, or as the printable ones they are.
_CHARACTER_TO_BYTE = {ord(character): byte for byte, character in BYTE_TO_CHARACTER.items()}


def spelled_bytes(token: str) -> bytes:
    """Return the bytes that a byte-level token stands for.

    A token that isn't written in the alphabet (an added token kept in the vocabulary as plain text) stands for its own
    UTF-8.
    """
    try:
        return bytes(_CHARACTER_TO_BYTE[ord(character)] for character in token)
    except KeyError:
        return token.encode("utf-8", errors="replace")
