"""The engine's one error tree.

    PellucidError
    ├── InvalidRequestError        the caller's fault; carries the parameter and a stable code (HTTP 400)
    │   └── ContextLengthError     prompt or prompt + max_tokens can't fit; carries both numbers
    ├── EngineUnavailableError     loading, draining, restarting or dead (HTTP 503)
    ├── QueueFullError             admission refused (HTTP 429)
    ├── RequestFailedError         an accepted request ended by a fault of ours (HTTP 500, or in-band)
    ├── ModelLoadError             a model file or directory can't be used; names the field (exit code 2)
    └── ConfigError                a setting or a combination of settings is wrong (exit code 2)

`error_type` is one stable string: it stands in the JSON error body and is the label of the metric.
"""

from typing import ClassVar


class PellucidError(Exception):
    """Base of every error that the project raises on purpose."""

    error_type: ClassVar[str] = "internal_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequestError(PellucidError):
    """Refuse a request for what it asks.

    Args:
        message: the parameter in backticks, the rule, the value given.
        param: the offending field, in the caller's spelling (`messages[0].content`), or None.
        code: a stable machine-readable code, or None.
    """

    error_type: ClassVar[str] = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthError(InvalidRequestError):
    """Refuse a request that can never fit.

    Args:
        num_requested_tokens: prompt tokens, or prompt + output tokens, that the request needs.
        max_tokens: how many the server can hold for one request.
        what: what the limit is (`this model's context`, `the KV cache`).
    """

    def __init__(
        self, *, num_requested_tokens: int, max_tokens: int, what: str = "this model's context", param: str = "prompt"
    ) -> None:
        super().__init__(
            f"`{param}` needs {num_requested_tokens} tokens, but {what} holds at most {max_tokens} tokens",
            param=param,
            code="context_length_exceeded",
        )
        self.num_requested_tokens = num_requested_tokens
        self.max_tokens = max_tokens


class EngineUnavailableError(PellucidError):
    """Say that the engine can't take requests now; `message` is the reason shown in `/ready`."""

    error_type: ClassVar[str] = "service_unavailable"


class QueueFullError(PellucidError):
    """Refuse for load.

    Args:
        message: what is full, with the numbers.
        retry_after_s: seconds after which trying again makes sense.
    """

    error_type: ClassVar[str] = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestFailedError(PellucidError):
    """End one accepted request for a fault that is not the caller's (NaN logits, a dead engine)."""

    error_type: ClassVar[str] = "internal_error"


class ModelLoadError(PellucidError):
    """Refuse a model file or directory; `message` is one line that names the field and the value found."""

    error_type: ClassVar[str] = "model_load_error"


class ConfigError(PellucidError):
    """Refuse a setting; `message` names it, the rule and the value."""

    error_type: ClassVar[str] = "config_error"
