"""Run all arms in alternation over the workloads, check their outputs, and make the record."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loadtest.closed_loop import LoadRun
from loadtest.prompts import PromptSource
from loadtest.summary import latencies, rates
from scripts.serving.arms import Arm, ArmError, CellUsage, HttpArm
from scripts.serving.verification import audit, check_answers, check_token_equality
from scripts.serving.workloads import Workload

PROMPTS_PER_STREAM = 40
MIN_PROMPTS = 240
CHECKED_PROMPTS = 8

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: rounds, and seconds of warm-up and window in each cell of a round."""

    repeats: int
    warm_up_s: float
    window_s: float


@dataclass
class Cell:
    """What one arm did in one workload at one concurrency, a run per round."""

    runs: list[LoadRun] = field(default_factory=list)
    used: list[CellUsage] = field(default_factory=list)

    def rates(self, workload: Workload) -> list[float]:
        each = [rates(run) for run in self.runs]
        return [one.prompt_tokens_per_s if workload.prompt_rate else one.output_tokens_per_s for one in each]


class Comparison:
    """One comparison of several arms.

    Args:
        arms: ours and the peers.
        text: token ids of real text, for the prompts.
        say: told what happens, a line at a time.

    Attributes:
        missing: why an arm is not in the figures.
    """

    def __init__(self, arms: Sequence[Arm], text: Sequence[int], effort: Effort, say: Say) -> None:
        self._arms = arms
        self._text = text
        self._effort = effort
        self._say = say
        self.missing: dict[str, str] = {}

    def run(self, workload: Workload) -> list[dict[str, Any]]:
        """Measure one workload and return its cells for the record.

        Raises:
            OutputsDifferError: an arm's outputs are not what they must be; there are no figures then.
        """
        source = PromptSource(self._text, seed=1)
        arms = self._started(workload)
        try:
            for arm in arms:
                if arm.is_ours:
                    assert isinstance(arm, HttpArm)
                    checked = source.take_many(CHECKED_PROMPTS, workload.prompt_tokens, shared=workload.shared_tokens)
                    count = check_token_equality(arm, checked, workload)
                    self._say(f"{workload.name}, {arm.name}: {count} tokens equal to those of one stream")
            cells = {(arm.name, number): Cell() for arm in arms for number in workload.concurrencies}
            for turn in range(self._effort.repeats):
                for number in workload.concurrencies:
                    self._round(workload, number, arms[turn % len(arms) :] + arms[: turn % len(arms)], cells, source)
            for arm in arms:
                for number in workload.concurrencies:
                    check_answers(arm.name, cells[arm.name, number].runs, workload)
                    if arm.is_ours:
                        assert isinstance(arm, HttpArm)
                        audit(arm, cells[arm.name, number].runs, workload)
        finally:
            for arm in arms:
                arm.stop()
        return [self._cell_record(workload, number, arms, cells) for number in workload.concurrencies]

    def _started(self, workload: Workload) -> list[Arm]:
        started: list[Arm] = []
        for arm in self._arms:
            try:
                arm.start(workload)
                started.append(arm)
            except ArmError as error:
                if arm.is_ours:
                    raise
                self.missing[arm.name] = str(error)
                self._say(f"MISSING {arm.name}: {error}")
        return started

    def _round(
        self, workload: Workload, number: int, arms: Sequence[Arm], cells: dict[tuple[str, int], Cell],
        source: PromptSource,
    ) -> None:  # fmt: skip
        """Run one cell of every arm, all with the same prompts, which no other round has."""
        effort = self._effort
        count = workload.num_requests or max(MIN_PROMPTS, PROMPTS_PER_STREAM * number)
        prompts = source.take_many(count, workload.prompt_tokens, shared=workload.shared_tokens)
        shape = workload.shape(number, warm_up_s=effort.warm_up_s, window_s=effort.window_s)
        for arm in arms:
            run, used = arm.run(shape, prompts, workload)
            cell = cells[arm.name, number]
            cell.runs.append(run)
            cell.used.append(used)
            self._say(f"{workload.name} x{number} {arm.name}: {cell.rates(workload)[-1]:.1f} tokens/s")

    def _cell_record(
        self, workload: Workload, number: int, arms: Sequence[Arm], cells: dict[tuple[str, int], Cell]
    ) -> dict[str, Any]:
        by_arm = {arm.name: cells[arm.name, number] for arm in arms}
        medians = {name: statistics.median(cell.rates(workload)) for name, cell in by_arm.items()}
        record: dict[str, Any] = {
            "workload": workload.name,
            "concurrency": number,
            "rate": "prompt tokens/s" if workload.prompt_rate else "output tokens/s",
            "arms": {name: _arm_record(cell, workload) for name, cell in by_arm.items()},
        }
        ours = [arm.name for arm in arms if arm.is_ours]
        peers = [arm.name for arm in arms if not arm.is_ours]
        if peers:
            best = max(peers, key=medians.__getitem__)
            ratios = {name: _ratio(by_arm[name].rates(workload), by_arm[best].rates(workload)) for name in ours}
            record["best_peer"] = best
            record["ratio_to_best_peer"], record["ratio_spread"] = ratios[ours[0]]
            record["other_ratios"] = {
                name: {"ratio": ratio, "spread": spread} for name, (ratio, spread) in ratios.items() if name != ours[0]
            }
        return record


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> tuple[float, list[float]]:
    """Return the ratio of the medians, and the least and the greatest of the rounds'."""
    paired = sorted(a / b for a, b in zip(mine, theirs, strict=True))
    return round(statistics.median(mine) / statistics.median(theirs), 3), [round(paired[0], 3), round(paired[-1], 3)]


def _arm_record(cell: Cell, workload: Workload) -> dict[str, Any]:
    each = cell.rates(workload)
    num_tokens = sum(record.num_tokens for run in cell.runs for record in run.records)
    seconds = sum(
        max(record.token_times[-1] for record in run.records if record.token_times) - run.records[0].started
        for run in cell.runs
    )
    return {
        "rates": [round(rate, 1) for rate in each],
        "median": round(statistics.median(each), 1),
        **{name: _rounded(value) for name, value in asdict(latencies(cell.runs)).items()},
        "peak_mib": round(max(used.peak_mib for used in cell.used)),
        "service_cpu_us_per_token": _rounded(1e6 * sum(used.cpu_s for used in cell.used) / num_tokens),
        "engine_cpu_us_per_token": _rounded(1e6 * sum(used.children_cpu_s for used in cell.used) / num_tokens),
        "client_cores": _rounded(sum(run.client_cpu_s for run in cell.runs) / seconds, 4),
    }


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)
