"""Service level objectives of one request, and whether it met them."""

from typing import Annotated

import msgspec
from msgspec import Meta

Milliseconds = Annotated[float, Meta(gt=0)] | None


class Slos(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds in milliseconds; None bounds nothing. Without any, every request that succeeds is good.

    Attributes:
        ttft_ms: from the planned moment of sending to the first token.
        itl_ms: the request's mean gap between tokens, (end - first token) / (tokens - 1).
        e2e_ms: from the planned moment of sending to the end.
    """

    ttft_ms: Milliseconds = None
    itl_ms: Milliseconds = None
    e2e_ms: Milliseconds = None

    def met(self, *, ttft_s: float, itl_s: float | None, e2e_s: float) -> bool:
        """Tell whether a successful request with these latencies is good; `itl_s` is None for a single token."""
        return (
            _within(ttft_s, self.ttft_ms)
            and _within(e2e_s, self.e2e_ms)
            and (itl_s is None or _within(itl_s, self.itl_ms))
        )

    def missed_already(self, *, waited_s: float, has_token: bool) -> bool:
        """Tell whether a request that was given up after `waited_s` could have been good no more."""
        return not _within(waited_s, self.e2e_ms) or not (has_token or _within(waited_s, self.ttft_ms))


def _within(seconds: float, bound_ms: float | None) -> bool:
    return bound_ms is None or seconds * 1e3 <= bound_ms
