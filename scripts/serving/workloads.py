"""The workloads that engines are compared on."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from loadtest.closed_loop import LoopShape


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked, and how often at once.

    Attributes:
        prompt_tokens: of each prompt.
        shared_tokens: the first of them, equal in all prompts of a run (but not between runs).
        new_tokens: generated for each, end-of-sequence ignored.
        concurrencies: numbers of streams, each a cell.
        num_requests: 0 measures a steady state in a window; else the run is exactly so many requests from cold.
        prompt_rate: what counts is prompt tokens per second, not output tokens.
        prefix_cache: engines may reuse prompts' KV.
    """

    name: str
    prompt_tokens: int
    new_tokens: int
    concurrencies: tuple[int, ...]
    shared_tokens: int = 0
    num_requests: int = 0
    prompt_rate: bool = False
    prefix_cache: bool = False

    def shape(self, concurrency: int, *, warm_up_s: float, window_s: float) -> LoopShape:
        """Return how one cell's loop runs; a window sees at least one whole wave."""
        if self.num_requests:
            return LoopShape(concurrency, num_requests=self.num_requests)
        return LoopShape(concurrency, warm_up_s=warm_up_s, window_s=window_s, min_requests=concurrency)

    def at(self, concurrencies: Collection[int]) -> "Workload":
        """Return this workload with only those of its concurrencies."""
        return replace(self, concurrencies=tuple(each for each in self.concurrencies if each in concurrencies))


WORKLOADS = (
    Workload("W1", prompt_tokens=128, new_tokens=64, concurrencies=(1, 8, 32)),
    Workload("W2", prompt_tokens=1024, new_tokens=32, concurrencies=(1, 8), prompt_rate=True),
    Workload(
        "W3", prompt_tokens=544, shared_tokens=512, new_tokens=32, concurrencies=(8,), num_requests=32,
        prefix_cache=True,
    ),
)  # fmt: skip
