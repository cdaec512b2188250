"""What a load client knows about one request when it is over."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestRecord:
    """One request as its client saw it; times are monotonic seconds.

    Attributes:
        prompt: its token ids; empty where the body was given whole.
        started: before the connection was opened.
        token_times: when each piece of output came: pieces with text or token ids only, never a role or usage chunk.
        finished: when the last choice's finish reason came, the end of the answer; a usage chunk may still follow.
        ended: the end of the stream; None when it broke off or was given up.
        text: all pieces joined.
        token_ids: as reported by servers that were asked for them.
        num_output_tokens: as the server counted them; while it hasn't said, the number of pieces.
        num_prompt_tokens: as the server counted them; 0 while it hasn't said.
        num_cached_tokens: prompt tokens that the server found in its cache, as it says.
        finish_reason: as the server gave it.
        status: of the HTTP answer; 0 while there is none.
        request_id: the server's `x-request-id`.
        error: why there is no whole answer; "" when there is one.
    """

    prompt: list[int]
    started: float
    token_times: list[float] = field(default_factory=list)
    finished: float | None = None
    ended: float | None = None
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    num_output_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    finish_reason: str = ""
    status: int = 0
    request_id: str = ""
    error: str = ""

    @property
    def is_complete(self) -> bool:
        return self.ended is not None and not self.error

    @property
    def num_tokens(self) -> int:
        """Output tokens so far, also of a request that was cut off."""
        return max(self.num_output_tokens, len(self.token_times))

    def tokens_between(self, opened: float, closed: float) -> float:
        """Return how many tokens came in [opened, closed]; a piece counts for its share of the request's tokens."""
        if not self.token_times:
            return 0.0
        num_pieces = sum(opened <= time <= closed for time in self.token_times)
        return num_pieces * self.num_tokens / len(self.token_times)
