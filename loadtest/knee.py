"""Where a concurrency sweep bends: the level after which more streams bring little throughput and much waiting."""

from collections.abc import Sequence

from loadtest.load_result import Knee, StageResult

MIN_BEND = 0.1  # how far above the straight line from the first to the last level the curve must rise to bend at all
MIN_ATTAINMENT = 0.95


def find_knee(stages: Sequence[StageResult], *, has_slos: bool) -> Knee:
    """Return the knee of output tokens per second over the number of streams.

    The knee is the level farthest above the straight line between the first and the last one, both axes scaled to 0..1
    (Kneedle, Satopää et al. 2011, without its smoothing). A curve that is nearly straight has none.
    """
    within = [
        stage.concurrency
        for stage in stages
        if has_slos and stage.concurrency and (stage.attainment.low or 0.0) >= MIN_ATTAINMENT
    ]
    best = max(within, default=None)
    levels = [float(stage.concurrency or 0) for stage in stages]
    rates = [stage.rates.output_tokens for stage in stages]
    low, high = min(rates, default=0.0), max(rates, default=0.0)
    if len(stages) < 3 or high <= low:
        return Knee(concurrency=None, best_within_slos=best, why="fewer than three levels, or none faster than another")
    span = levels[-1] - levels[0]
    rises = [
        (rate - low) / (high - low) - (level - levels[0]) / span for level, rate in zip(levels, rates, strict=True)
    ]
    place = max(range(len(rises)), key=rises.__getitem__)
    if rises[place] < MIN_BEND:
        return Knee(concurrency=None, best_within_slos=best, why="throughput grew with every level up to the last one")
    share = rates[place] / high
    why = f"{stages[place].label} reach {share:.0%} of the highest throughput; more streams mostly wait"
    return Knee(concurrency=stages[place].concurrency, best_within_slos=best, why=why)
