"""One request of a load from its planned moment to its end."""

import time
from dataclasses import dataclass, field
from itertools import pairwise

from loadtest.fluidity import fluidity
from loadtest.load_result import RequestResult, Status
from loadtest.planned_request import PlannedRequest
from loadtest.request_record import RequestRecord
from loadtest.slo import Slos

REFUSALS = (429, 503)


@dataclass(slots=True, eq=False)
class LoadRequest:
    """What the generator knows of a request; stamps are monotonic seconds.

    Attributes:
        planned: what the plan says of it.
        due: when it should have been sent. All latencies count from here, so that a server (or a generator) that makes
            requests wait before they are sent doesn't make its own figures better.
        is_warm_up: not measured.
        dispatched: when the generator came to it; later than `due` by the generator's own lateness.
        sent: when it got its connection.
        record: what came.
        num_shown: token times that a snapshot has seen already.
    """

    planned: PlannedRequest
    due: float
    is_warm_up: bool
    dispatched: float
    record: RequestRecord
    sent: float | None = None
    ended: float | None = None
    num_shown: int = 0
    end: str = field(default="")

    def finish(self) -> None:
        """Take note that it is over by itself: there is an answer, or an error in its record."""
        record = self.record
        if not record.error and record.finished is None:
            record.error = "the stream ended without a finish reason"
        self.ended = record.finished if not record.error else time.perf_counter()

    def give_up(self, why: str) -> None:
        """Take note that the generator ended it; `why` makes it a failure, "" only cuts it off."""
        self.ended = time.perf_counter()
        self.record.error = self.record.error or why
        self.end = "" if why else "cut"

    @property
    def status(self) -> Status:
        if self.end == "cut":
            return "cut"
        if not self.record.error:
            return "ok"
        return "rejected" if self.record.status in REFUSALS else "failed"

    def result(self, *, stage: int, origin: float, slos: Slos) -> RequestResult:
        """Return it in its final form, with moments in seconds from `origin`."""
        record, status = self.record, self.status
        assert self.ended is not None
        times = record.token_times
        e2e_s = self.ended - self.due
        ttft_s = times[0] - self.due if times else None
        num_tokens = record.num_tokens
        itl_s = (self.ended - times[0]) / (num_tokens - 1) if times and num_tokens > 1 else None
        is_good: bool | None = False
        if status == "ok":
            is_good = ttft_s is not None and slos.met(ttft_s=ttft_s, itl_s=itl_s, e2e_s=e2e_s)
        elif status == "cut":
            is_good = False if slos.missed_already(waited_s=e2e_s, has_token=bool(times)) else None
        return RequestResult(
            number=self.planned.number,
            stage=stage,
            status=status,
            is_warm_up=self.is_warm_up,
            due_s=self.due - origin,
            dispatched_s=self.dispatched - origin,
            sent_s=None if self.sent is None else self.sent - origin,
            first_token_s=times[0] - origin if times else None,
            ended_s=self.ended - origin,
            prompt_tokens_asked=self.planned.prompt_tokens,
            output_tokens_asked=self.planned.output_tokens,
            num_prompt_tokens=record.num_prompt_tokens,
            num_cached_tokens=record.num_cached_tokens,
            num_output_tokens=num_tokens,
            num_chunks=len(times),
            itl_s=itl_s if status == "ok" else None,
            longest_gap_s=max((later - earlier for earlier, later in pairwise(times)), default=None),
            fluidity=fluidity(times, due=self.due, slos=slos) if status == "ok" else None,
            is_good=is_good,
            finish_reason=record.finish_reason,
            http_status=record.status,
            request_id=record.request_id,
            error=record.error,
        )
