"""Which fields of a body are known, harmless, unsupported or unknown: decided by name before anything is parsed.

A field that would change the output and isn't supported is refused, unless it has the value that changes nothing.
A harmless field is accepted. An unknown one is accepted and named in a header, or refused when the server is strict.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine.errors import InvalidRequestError
from service.errors import clip

# Accepted and not acted on: they change accounting, storage, speed or padding, never the text.
HARMLESS: frozenset[str] = frozenset(
    {
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "parallel_tool_calls", "prediction", "request_id", "session_id", "cache_prompt",
        "id_slot", "timings_per_token",
    }
)  # fmt: skip

# Would change the output, with the values of each that change nothing.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "suffix": ("",),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_decoding_backend": (),
    "guided_whitespace_pattern": (),
    "grammar": ("",),
    "json_schema": (),
    "documents": ([],),
    "chat_template": (),
    "mm_processor_kwargs": (),
    "logits_processors": ([],),
    "logprob_token_ids": ([],),
    "kv_transfer_params": (),
    "vllm_xargs": ({},),
    "repetition_detection": (),
    "return_tokens_as_token_ids": (False,),
    "return_prompt_text": (False,),
    "spaces_between_special_tokens": (True,),
    "typical_p": (1, 1.0),
    "tfs_z": (1, 1.0),
    "top_a": (0, 0.0),
    "mirostat": (0,),
    "dynatemp_range": (0, 0.0),
    "dry_multiplier": (0, 0.0),
    "xtc_probability": (0, 0.0),
    "n_predict": (),
    "n_keep": (0,),
    "lora": ([],),
    "lora_request": (),
}

MAX_NAMED = 20


def check_parameters(
    body: Mapping[str, Any], *, known: Collection[str], strict: bool, also_unsupported: Mapping[str, tuple[Any, ...]]
) -> list[str]:
    """Return the names of the fields that will be ignored because nobody knows them, sorted.

    Args:
        known: fields of the route.
        strict: refuse unknown fields instead.
        also_unsupported: the route's own additions to UNSUPPORTED.

    Raises:
        InvalidRequestError: an unsupported field, or an unknown one on a strict server, by name.
    """
    unknown = []
    for name, value in body.items():
        if name in known or name in HARMLESS:
            continue
        neutral = also_unsupported.get(name, UNSUPPORTED.get(name))
        if neutral is None:
            unknown.append(name)
        elif not any(type(value) is type(same) and value == same for same in neutral):
            raise InvalidRequestError(
                f"`{name}` is not supported by this server", param=name, code="unsupported_parameter"
            )
    if unknown and strict:
        raise InvalidRequestError(
            f"`{clip(unknown[0])}` is not a field of this route, and unknown fields are refused",
            param=clip(unknown[0]),
            code="unknown_parameter",
        )
    return sorted(unknown)


def ignored_header(unknown: Sequence[str]) -> str:
    """Return the value of `x-ignored-params`: names that are safe in a header, a bounded number of them."""
    shown = [
        "".join(ch if ch.isascii() and (ch.isalnum() or ch in "_.-") else "?" for ch in name[:64]) for name in unknown
    ]
    more = [f"(+{len(shown) - MAX_NAMED})"] if len(shown) > MAX_NAMED else []
    return ", ".join(shown[:MAX_NAMED] + more)
