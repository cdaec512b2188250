"""Outputs are checked before any figure is printed: ours for equality, peers' for being answers at all."""

import asyncio
from collections.abc import Sequence

from loadtest.closed_loop import LoadRun, LoopShape, run_closed_loop
from loadtest.request_record import RequestRecord
from scripts.serving.arms import HttpArm
from scripts.serving.workloads import Workload

MIN_DISTINCT = 4  # words, or tokens where there is no text, of an answer that isn't one thing over and over
MIN_SHARE = 0.8  # of the answers that must be so: a small model does loop now and then
MIN_ANSWERS = 10  # from which on that share means something; of fewer, one must be so
AUDITED = 4  # requests of each measured run that are run again alone


class OutputsDifferError(Exception):
    """An engine's output is not what it must be; its speed means nothing then."""


def check_answers(name: str, runs: Sequence[LoadRun], workload: Workload) -> None:
    """Raise OutputsDifferError unless answers are complete, of the length asked for and not degenerate."""
    complete = [record for run in runs for record in run.records if record.is_complete]
    if not complete:
        raise OutputsDifferError(f"{name}, {workload.name}: no request was completed")
    for record in complete:
        if record.num_output_tokens != workload.new_tokens:
            raise OutputsDifferError(
                f"{name}, {workload.name}: {record.num_output_tokens} tokens where {workload.new_tokens} were asked for"
            )
    good = sum(_distinct(record) >= MIN_DISTINCT for record in complete)
    if good < (MIN_SHARE * len(complete) if len(complete) >= MIN_ANSWERS else 1):
        raise OutputsDifferError(f"{name}, {workload.name}: {len(complete) - good} of {len(complete)} answers loop")


def check_token_equality(arm: HttpArm, prompts: Sequence[list[int]], workload: Workload) -> int:
    """Compare token ids under every concurrency with those of one stream; return how many tokens were compared.

    Every run has a cache salt of its own, so that no run reads what another has left in the prefix cache.
    """
    alone = _run(arm, prompts, workload, concurrency=1, salt="alone")
    num_tokens = 0
    for concurrency in workload.concurrencies:
        together = _run(arm, prompts, workload, concurrency=concurrency, salt=f"{concurrency} streams")
        for expected, record in zip(alone, together, strict=True):
            if not record.token_ids or record.token_ids != expected.token_ids:
                raise OutputsDifferError(
                    f"{arm.name}, {workload.name}: {concurrency} streams gave {record.token_ids}, one stream "
                    f"{expected.token_ids}"
                )
            num_tokens += len(record.token_ids)
    return num_tokens


def audit(arm: HttpArm, runs: Sequence[LoadRun], workload: Workload) -> int:
    """Run some of the measured requests again, alone and uncached, and compare texts; return how many."""
    audited = [record for run in runs for record in [each for each in run.records if each.is_complete][:AUDITED]]
    again = _run(arm, [record.prompt for record in audited], workload, concurrency=1, salt="audit", ids=False)
    for measured, alone in zip(audited, again, strict=True):
        if measured.text != alone.text:
            raise OutputsDifferError(
                f"{arm.name}, {workload.name}: a measured request answered {measured.text!r}, alone {alone.text!r}"
            )
    return len(audited)


def _run(
    arm: HttpArm, prompts: Sequence[list[int]], workload: Workload, *, concurrency: int, salt: str, ids: bool = True
) -> list[RequestRecord]:
    client = arm.client(workload)
    shape = LoopShape(concurrency, num_requests=len(prompts))
    run = asyncio.run(
        run_closed_loop(
            lambda record: client.run(record, return_token_ids=ids, cache_salt=f"{workload.name} {salt}"),
            prompts,
            shape,
        )
    )
    return run.records


def _distinct(record: RequestRecord) -> int:
    return len(set(record.text.split() if record.text else record.token_ids))
