"""TemplateBudget: what one rendering may cost, so that no template can hold a thread or fill the memory."""

from contextvars import ContextVar
from dataclasses import dataclass

from engine.clock import Clock

_TICKS_PER_CLOCK_READING = 256
# One value that a template computes (a string's length, a list's items), and the digits of a number in bits.
MAX_VALUE_SIZE = 8_000_000
MAX_INTEGER_BITS = 4096


class TemplateBudgetExceededError(Exception):
    """A rendering costs more than its budget; the message names the limit."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """Limits of one rendering.

    Attributes:
        max_output_chars: length of the prompt text.
        max_iterations: loop turns, all loops together; a macro call counts as sixteen.
        max_copied_chars: characters that string operations produce on the way, all together.
        max_time_s: seconds.
    """

    max_output_chars: int = 16_000_000
    max_iterations: int = 500_000
    max_copied_chars: int = 256_000_000
    max_time_s: float = 2.0


class TemplateBudget:
    """The running account of one rendering."""

    def __init__(self, limits: TemplateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._deadline = clock.now() + limits.max_time_s
        self._num_iterations = 0
        self._num_ticks = 0
        self._num_output_chars = 0
        self._num_copied_chars = 0

    def tick(self, num_turns: int) -> None:
        """Count turns of a loop, or what costs as much."""
        self._num_iterations += num_turns
        if self._num_iterations > self._limits.max_iterations:
            raise TemplateBudgetExceededError(f"it takes more than {self._limits.max_iterations} loop turns")
        self._num_ticks += 1
        if self._num_ticks % _TICKS_PER_CLOCK_READING == 0:
            self.check_time()

    def check_time(self) -> None:
        if self._clock.now() > self._deadline:
            raise TemplateBudgetExceededError(f"it takes longer than {self._limits.max_time_s} s")

    def output(self, num_chars: int) -> None:
        """Count text that is rendered for good."""
        self._num_output_chars += num_chars
        if self._num_output_chars > self._limits.max_output_chars:
            raise TemplateBudgetExceededError(f"it gives more than {self._limits.max_output_chars} characters")

    def value(self, size: int) -> None:
        """Count a value that is about to be computed: characters or items."""
        if size > MAX_VALUE_SIZE:
            raise TemplateBudgetExceededError(f"it builds a value of more than {MAX_VALUE_SIZE} characters or items")
        self._num_copied_chars += size
        if self._num_copied_chars > self._limits.max_copied_chars:
            raise TemplateBudgetExceededError(
                f"its string operations make more than {self._limits.max_copied_chars} characters"
            )
        self.check_time()


# The rendering that runs in this thread; the functions that a template calls have no other way to know theirs.
CURRENT_BUDGET: ContextVar[TemplateBudget] = ContextVar("template_budget")
