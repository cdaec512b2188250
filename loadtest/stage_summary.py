"""From the requests of a stage to its figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from loadtest.attainment import attainment
from loadtest.distribution import Distribution, distribution
from loadtest.ledger import Ended
from loadtest.load_result import Counts, Rates, RequestResult, StageResult

MAX_ERRORS = 20


def stage_result(
    ended: Sequence[Ended], *, label: str, concurrency: int | None, origin: float, opened: float, closed: float
) -> StageResult:
    """Return the figures of the requests that fell due in the window.

    Args:
        ended: all requests of the stage.
        origin: of the load's moments.
        opened, closed: the window, warm-up left out; like `origin` in monotonic seconds.
    """
    measured = [each for each in ended if not each.result.is_warm_up]
    results = [each.result for each in measured]
    statuses = Counter(result.status for result in results)
    judged = [result.is_good for result in results if result.is_good is not None]
    window_s = max(closed - opened, 1e-9)
    start, end = opened - origin, closed - origin
    rates = Rates(
        requests_planned=sum(start <= result.due_s <= end for result in results) / window_s,
        requests_sent=sum(_in(each.result.sent_s, start, end) for each in ended) / window_s,
        requests_done=sum(_in(each.result.ended_s, start, end) for each in ended if each.result.status == "ok")
        / window_s,
        goodput=sum(judged) / window_s,
        output_tokens=sum(_tokens_within(each, opened, closed) for each in ended) / window_s,
        prompt_tokens=sum(
            each.result.num_prompt_tokens
            for each in ended
            if each.result.status in ("ok", "cut") and _in(each.result.first_token_s, start, end)
        )
        / window_s,
    )
    errors = Counter(result.error for result in results if result.status in ("rejected", "failed"))
    return StageResult(
        label=label,
        concurrency=concurrency,
        window_s=window_s,
        counts=Counts(
            ok=statuses["ok"],
            rejected=statuses["rejected"],
            failed=statuses["failed"],
            cut=statuses["cut"],
            warm_up=len(ended) - len(measured),
        ),
        rates=rates,
        attainment=attainment(sum(judged), len(judged)),
        metrics=_metrics(results, [each for each in measured if each.result.status == "ok"]),
        errors=dict(errors.most_common(MAX_ERRORS)),
    )


def _metrics(results: Sequence[RequestResult], answered: Sequence[Ended]) -> dict[str, Distribution]:
    """Return the distributions: latencies of answers only, the generator's own delays of every request."""
    good = [each.result for each in answered]
    gaps = ((later - earlier) * 1e3 for each in answered for earlier, later in pairwise(each.token_times))
    return {
        "time_to_first_token": distribution(_ms(result.ttft_s for result in good), "ms"),
        "time_to_first_token_after_send": distribution(
            _ms(
                result.first_token_s - result.sent_s
                for result in good
                if result.first_token_s is not None and result.sent_s is not None
            ),
            "ms",
        ),
        "inter_token_latency": distribution(_ms(result.itl_s for result in good), "ms"),
        "inter_chunk_latency": distribution(gaps, "ms"),
        "longest_gap": distribution(_ms(result.longest_gap_s for result in good), "ms"),
        "request_latency": distribution(_ms(result.e2e_s for result in good), "ms"),
        "request_dispatch_delay": distribution(_ms(result.dispatched_s - result.due_s for result in results), "ms"),
        "connection_wait": distribution(
            _ms(result.sent_s - result.dispatched_s for result in results if result.sent_s is not None), "ms"
        ),
        "output_sequence_length": distribution((float(result.num_output_tokens) for result in good), "tokens"),
        "input_sequence_length": distribution((float(result.num_prompt_tokens) for result in good), "tokens"),
        "cached_prompt_tokens": distribution((float(result.num_cached_tokens) for result in good), "tokens"),
        "fluidity": distribution((result.fluidity for result in good if result.fluidity is not None), "ratio"),
    }


def _ms(seconds: Iterable[float | None]) -> Iterable[float]:
    return (each * 1e3 for each in seconds if each is not None)


def _in(moment: float | None, start: float, end: float) -> bool:
    return moment is not None and start <= moment <= end


def _tokens_within(each: Ended, opened: float, closed: float) -> float:
    """Return the output tokens that came in the window; a piece counts for its share of the answer's tokens."""
    if each.result.status not in ("ok", "cut") or not each.token_times:
        return 0.0
    pieces = sum(opened <= moment <= closed for moment in each.token_times)
    return pieces * each.result.num_output_tokens / len(each.token_times)
