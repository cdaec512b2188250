"""HuggingFaceTokenizerSource out of the tokenizer files of a directory."""

from pathlib import Path
from typing import Any

from engine.errors import ModelLoadError
from engine.model.json_file import JsonFile
from engine.model.tokenizer_source import HuggingFaceTokenizerSource


def read_tokenizer(directory: Path, config: JsonFile) -> HuggingFaceTokenizerSource:
    """Collect what the files say about special tokens and the template.

    Raises:
        ModelLoadError: tokenizer.json is missing, or a field has the wrong type.
    """
    tokenizer_json = directory / "tokenizer.json"
    if not tokenizer_json.is_file():
        raise ModelLoadError("tokenizer.json is missing; tokenizers in other formats aren't read")
    settings = JsonFile.read_if_present(directory / "tokenizer_config.json")
    generation = JsonFile.read_if_present(directory / "generation_config.json")
    ids = _special_ids(JsonFile.read(tokenizer_json))
    bos_token, eos_token = _text(settings, "bos_token"), _text(settings, "eos_token")
    bos_ids = _ids(generation, "bos_token_id") or _ids(config, "bos_token_id")
    if not bos_ids and bos_token in ids:
        bos_ids = (ids[bos_token],)
    eos_ids = _ids(generation, "eos_token_id") or _ids(config, "eos_token_id")
    if eos_token in ids:
        eos_ids = (*eos_ids, ids[eos_token])
    return HuggingFaceTokenizerSource(
        tokenizer_json=tokenizer_json,
        bos_token=bos_token,
        eos_token=eos_token,
        unk_token=_text(settings, "unk_token"),
        pad_token=_text(settings, "pad_token"),
        bos_id=bos_ids[0] if bos_ids else None,
        eos_ids=tuple(dict.fromkeys(eos_ids)),
        add_bos=settings.get_bool("add_bos_token"),
        chat_template=_chat_template(directory, settings),
    )


def _special_ids(tokenizer: JsonFile) -> dict[str | None, int]:
    """Return the ids of the added tokens, by text."""
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list):
        raise ModelLoadError("tokenizer.json: `added_tokens` must be a list")
    found: dict[str | None, int] = {}
    for entry in added:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise ModelLoadError("tokenizer.json: each of `added_tokens` must be an object with `content` and `id`")
        found[entry["content"]] = _checked_id(entry.get("id"), "tokenizer.json: `added_tokens` id")
    return found


def _ids(file: JsonFile, key: str) -> tuple[int, ...]:
    value = file.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(_checked_id(item, f"{file.label}: `{key}`") for item in values)


def _checked_id(value: Any, label: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ModelLoadError(f"{label} must be a token id, found {repr(value)[:60]}")
    return value


def _text(settings: JsonFile, key: str) -> str | None:
    """Return a special token's text, written plainly or as an object with `content`."""
    value = settings.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise ModelLoadError(f"{settings.label}: `{key}` must be a string, found {repr(value)[:60]}")
    return value


def _chat_template(directory: Path, settings: JsonFile) -> str | None:
    path = directory / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelLoadError(f"{path.name}: can't be read: {error}") from None
    value = settings.get("chat_template")
    if isinstance(value, list):
        named = (entry for entry in value if isinstance(entry, dict) and entry.get("name") == "default")
        value = next(named, {}).get("template")
    if value is not None and not isinstance(value, str):
        raise ModelLoadError(f"{settings.label}: `chat_template` must be a string or a list of named templates")
    return value
