"""How the client watches over the engine: time limits, and how often a lost engine is started again."""

from collections import deque

import msgspec

from engine.clock import Clock
from engine.errors import ConfigError
from engine.messages import EngineInfo


class SupervisionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the watch, all in seconds but `max_restarts`.

    Attributes:
        hang_timeout_s: with work pending, a longer silence means that the engine hangs; it is killed. Raised to
            `longest_honest_step_s` where that is more.
        load_timeout_s: the same while it loads, between two load stages.
        check_s: how often the silence is looked at.
        max_restarts: restarts within `restart_window_s`; one more loss in that time and the engine stays down.
        restart_window_s: see above.
        first_delay_s: pause before the first restart of a window; each further one doubles it.
        max_delay_s: longest pause.
        shutdown_s: how long close() lets the engine end in order before it is killed.
        reap_s: how long a killed engine may take to be gone.
    """

    hang_timeout_s: float = 60.0
    load_timeout_s: float = 900.0
    check_s: float = 0.5
    max_restarts: int = 5
    restart_window_s: float = 300.0
    first_delay_s: float = 0.5
    max_delay_s: float = 10.0
    shutdown_s: float = 5.0
    reap_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("hang_timeout_s", "load_timeout_s", "check_s", "restart_window_s", "shutdown_s", "reap_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"`{name}` must be greater than 0, got {getattr(self, name)}")
        for name in ("max_restarts", "first_delay_s", "max_delay_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"`{name}` must be at least 0, got {getattr(self, name)}")


SLOWEST_CPU_FLOP_PER_S = 5e9


def longest_honest_step_s(info: EngineInfo) -> float:
    """Return how long a step of the full token budget may take on the slowest CPU worth serving from; 0 on devices.

    Two operations per parameter and token; attention and the overcount of experts that stay idle are left to the
    generous rate. A 7B model with a budget of 512 tokens gets 24 minutes, a 135M one half a minute.
    """
    if not info.device.startswith("cpu"):
        return 0.0
    return 2.0 * info.num_parameters * info.max_num_batched_tokens / SLOWEST_CPU_FLOP_PER_S


class RestartBudget:
    """Says whether, and after what pause, a lost engine may be started again.

    Args:
        config: the limits.
        clock: what the window is measured with.
    """

    def __init__(self, config: SupervisionConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._restarts: deque[float] = deque()

    def next_delay_s(self) -> float | None:
        """Count one restart and return the pause before it; None when the window's restarts are used up."""
        now = self._clock.now()
        while self._restarts and now - self._restarts[0] > self._config.restart_window_s:
            self._restarts.popleft()
        num_recent = len(self._restarts)
        if num_recent >= self._config.max_restarts:
            return None
        self._restarts.append(now)
        return min(self._config.max_delay_s, self._config.first_delay_s * float(2**num_recent))


class Silence:
    """Decides whether a silence is over its limit.

    One overdue look is not enough: when the service itself was stopped for a while (a debugger, Ctrl-Z, a blocked event
    loop), the first look comes before the messages that wait in the socket have been read. The second one tells.
    """

    def __init__(self) -> None:
        self._num_overdue = 0

    def is_too_long(self, *, is_overdue: bool) -> bool:
        """Note one look; return True at the second one in a row that found the silence over its limit."""
        self._num_overdue = self._num_overdue + 1 if is_overdue else 0
        return self._num_overdue >= 2
