"""Keeps account of a load's requests while it runs: who is in flight, what became of the others, what the last seconds
were like."""

import time
from array import array
from dataclasses import dataclass

from loadtest.live_window import LiveWindow
from loadtest.load_request import LoadRequest
from loadtest.load_result import RequestResult
from loadtest.slo import Slos
from loadtest.snapshot import LoadSnapshot, Phase

WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is over, with the monotonic moments of its pieces."""

    result: RequestResult
    token_times: "array[float]"


@dataclass(frozen=True, slots=True)
class StageInfo:
    """Which part of the load runs: its place, and what it asks for."""

    number: int
    num_stages: int
    label: str
    concurrency: int | None


class Ledger:
    """The account of one load.

    Args:
        origin: monotonic seconds; all moments of results count from here.
        slos: by which requests are judged.
        num_planned: requests of all stages; None when only time ends them.

    Attributes:
        phase: shown in snapshots; the runner sets it.
        stage: likewise.
    """

    def __init__(self, *, origin: float, slos: Slos, num_planned: int | None) -> None:
        self.origin = origin
        self.phase: Phase = "warm_up"
        self.stage = StageInfo(0, 1, "", None)
        self._slos = slos
        self._num_planned = num_planned
        self._in_flight: set[LoadRequest] = set()
        self._ended: list[Ended] = []
        self._num_by_status = {"ok": 0, "rejected": 0, "failed": 0, "cut": 0}
        self._num_sent = 0
        self._last_error = ""
        self._due, self._sent, self._done, self._tokens = (LiveWindow(WINDOW_S) for _ in range(4))
        self._ttft, self._itl, self._e2e, self._lateness = (LiveWindow(WINDOW_S) for _ in range(4))

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    def dispatched(self, request: LoadRequest) -> None:
        """The generator came to a request."""
        self._in_flight.add(request)
        self._due.add(request.dispatched)
        self._lateness.add(request.dispatched, request.dispatched - request.due)

    def sent(self, request: LoadRequest) -> None:
        """A request got its connection."""
        request.sent = time.perf_counter()
        self._num_sent += 1
        self._sent.add(request.sent)

    def over(self, request: LoadRequest) -> None:
        """A request has an end, of whatever kind."""
        self._in_flight.discard(request)
        self._show(request)
        result = request.result(stage=self.stage.number, origin=self.origin, slos=self._slos)
        self._ended.append(Ended(result, array("d", request.record.token_times)))
        self._num_by_status[result.status] += 1
        if result.status == "ok":
            self._done.add(self.origin + result.ended_s)
            self._e2e.add(self.origin + result.ended_s, result.e2e_s)
        elif result.error:
            self._last_error = result.error

    def give_up_rest(self, why: str) -> None:
        """Close requests whose tasks were ended before they could begin; `why` as in LoadRequest.give_up."""
        for request in list(self._in_flight):
            request.give_up(why)
            self.over(request)

    def take_ended(self) -> list[Ended]:
        """Return what has ended since the last call, in order."""
        ended, self._ended = self._ended, []
        return ended

    def snapshot(self, now: float) -> LoadSnapshot:
        """Return the load as it is at `now`, in monotonic seconds."""
        for request in self._in_flight:
            self._show(request)
        for window in (
            *(self._due, self._sent, self._done, self._tokens),
            *(self._ttft, self._itl, self._e2e, self._lateness),
        ):
            window.forget_before(now)
        elapsed_s = max(0.0, now - self.origin)
        ttft, itl, e2e = self._ttft.quantiles_ms(), self._itl.quantiles_ms(), self._e2e.quantiles_ms()
        is_open = self.stage.concurrency is None
        return LoadSnapshot(
            elapsed_s=elapsed_s,
            phase=self.phase,
            stage=self.stage.number,
            num_stages=self.stage.num_stages,
            stage_label=self.stage.label,
            window_s=WINDOW_S,
            concurrency=self.stage.concurrency,
            in_flight=len(self._in_flight),
            waiting=sum(request.sent is None for request in self._in_flight),
            num_planned=self._num_planned,
            num_sent=self._num_sent,
            num_done=self._num_by_status["ok"],
            num_rejected=self._num_by_status["rejected"],
            num_failed=self._num_by_status["failed"],
            num_cut=self._num_by_status["cut"],
            rate_asked=self._due.per_second(elapsed_s) if is_open else None,
            rate_sent=self._sent.per_second(elapsed_s),
            rate_done=self._done.per_second(elapsed_s),
            output_tokens_per_s=self._tokens.per_second(elapsed_s),
            ttft_p50_ms=ttft[0],
            ttft_p95_ms=ttft[1],
            ttft_p99_ms=ttft[2],
            itl_p50_ms=itl[0],
            itl_p95_ms=itl[1],
            itl_p99_ms=itl[2],
            e2e_p50_ms=e2e[0],
            e2e_p95_ms=e2e[1],
            e2e_p99_ms=e2e[2],
            lateness_max_ms=self._lateness.max_ms(),
            last_error=self._last_error,
        )

    def _show(self, request: LoadRequest) -> None:
        """Bring the pieces that came since the last look into the windows."""
        times = request.record.token_times
        for place in range(request.num_shown, len(times)):
            self._tokens.add(times[place])
            if place:
                self._itl.add(times[place], times[place] - times[place - 1])
            else:
                self._ttft.add(times[0], times[0] - request.due)
        request.num_shown = len(times)
