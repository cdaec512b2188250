"""The request fields that both generating routes share, as they stand in the JSON body."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_SALT_CHARS = 1024

MAX_INTEGER = 2**63 - 1
Integer = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
"""What every integer of a body is that has no narrower range: it travels to the engine in 64 bits."""


class WireModel(BaseModel):
    """A checked part of a body: strict types, no NaN, frozen; unknown keys are found by the parser, not here."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class StreamOptions(WireModel):
    """`stream_options`; obfuscation pads chunks and changes no text, so it is accepted and not done."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GenerationFields(WireModel):
    """Sampling, stopping, reporting and scheduling. None means absent; ranges are checked once, in sampling.py."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(default=1, ge=1, le=MAX_INTEGER)
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_INTEGER)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MAX_INTEGER)
    min_tokens: int = Field(default=0, ge=0, le=MAX_INTEGER)
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: Integer | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Integer] | None = None
    ignore_eos: bool = False
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[Integer] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: Integer | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    return_token_ids: bool = False
    priority: int = Field(default=0, ge=-(2**31), le=2**31 - 1)
    cache_salt: str = Field(default="", max_length=MAX_SALT_CHARS)
    timings: bool | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def asked_tokens(self) -> int | None:
        """Output tokens asked for; the newer of the two names wins."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stop_list(self) -> tuple[str, ...]:
        """The stop strings, each once, in the order given."""
        if self.stop is None:
            return ()
        return tuple(dict.fromkeys([self.stop] if isinstance(self.stop, str) else self.stop))
