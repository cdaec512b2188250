"""Fluidity: the share of an answer's tokens that came in time for a reader (after Etalon, arXiv 2407.07000).

The first token is due one TTFT bound after the request, each further one an ITL bound after the deadline before it,
so tokens that come early leave slack for later ones. After a miss the reader has waited anyway: the next deadline is
one ITL bound after the late token. A stall misses every deadline that would have passed during it, not just one; that
is how a long one costs more than a short one.
"""

import math
from collections.abc import Sequence

from loadtest.slo import Slos


def fluidity(times: Sequence[float], *, due: float, slos: Slos) -> float | None:
    """Return the share of deadlines met by pieces that came at `times`, or None without pieces or without both bounds.

    Args:
        times: ascending monotonic seconds.
        due: when the request should have been sent.
        slos: `ttft_ms` and `itl_ms` are used.
    """
    if not times or slos.ttft_ms is None or slos.itl_ms is None:
        return None
    gap = slos.itl_ms / 1e3
    deadline = due + slos.ttft_ms / 1e3
    met = missed = 0
    for time in times:
        if time <= deadline:
            met += 1
            deadline += gap
        else:
            missed += 1 + math.floor((time - deadline) / gap)
            deadline = time + gap
    return met / (met + missed)
