"""Spans on their way to a collector: a bounded queue and one thread, so that nobody else ever waits for it.

The SDK's BatchSpanProcessor doesn't do: its shutdown waits for 30 s that can't be set, and what it drops, whether the
queue was full or the collector refused, is counted nowhere one could show it (docs/adr/0021).
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger("pellucid.tracing")

QUEUE_FULL, EXPORT_FAILED, SHUTDOWN = "queue_full", "export_failed", "shutdown"


class SpanQueue:
    """Batches spans to an exporter. `add` costs a lock that is never held during an export.

    Args:
        exporter: may take as long as it likes; its thread is a daemon.
        endpoint: for the log.
        max_spans: spans that may wait; newer ones are dropped.
        max_batch: spans of one export.
        delay_s: how long to wait for a full batch.
    """

    def __init__(
        self, exporter: SpanExporter, *, endpoint: str, max_spans: int, max_batch: int, delay_s: float
    ) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._max_spans = max_spans
        self._max_batch = max_batch
        self._delay_s = delay_s
        self._changed = threading.Condition()
        self._spans: deque[ReadableSpan] = deque()
        self._num_in_flight = 0
        self._is_closing = False
        self._is_abandoned = False
        self._is_failing = False
        self._num_exported = 0
        self._dropped = {QUEUE_FULL: 0, EXPORT_FAILED: 0, SHUTDOWN: 0}
        self._thread = threading.Thread(target=self._work, name="span export", daemon=True)
        self._thread.start()

    @property
    def num_exported(self) -> int:
        """Spans that the collector took."""
        return self._num_exported

    def dropped(self) -> dict[str, int]:
        """Return spans lost by reason: `queue_full`, `export_failed`, `shutdown`."""
        with self._changed:
            return dict(self._dropped)

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Queue finished spans, as many as there is room for."""
        with self._changed:
            was_empty = not self._spans
            room = 0 if self._is_closing else self._max_spans - len(self._spans)
            self._spans.extend(spans[:room])
            if len(spans) > room:
                self._dropped[SHUTDOWN if self._is_closing else QUEUE_FULL] += len(spans) - room
            if was_empty or len(self._spans) >= self._max_batch:
                self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Send what is queued for at most so long, then count the rest as lost. Returns in bounded time."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            num_lost = len(self._spans) + self._num_in_flight
            self._dropped[SHUTDOWN] += num_lost
            self._is_abandoned = True
            self._spans.clear()
        self._exporter.shutdown()
        if num_lost:
            log.warning("%d spans did not reach %s before the end", num_lost, self._endpoint)

    def _work(self) -> None:
        while batch := self._next_batch():
            succeeded = self._exporter.export(batch) is SpanExportResult.SUCCESS
            self._settle(len(batch), succeeded=succeeded)

    def _next_batch(self) -> list[ReadableSpan]:
        """Wait for spans; return none when closing and all are sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._spans)
            self._changed.wait_for(
                lambda: self._is_closing or len(self._spans) >= self._max_batch, timeout=self._delay_s
            )
            batch = [self._spans.popleft() for _ in range(min(self._max_batch, len(self._spans)))]
            self._num_in_flight = len(batch)
            return batch

    def _settle(self, num_spans: int, *, succeeded: bool) -> None:
        with self._changed:
            self._num_in_flight = 0
            if self._is_abandoned:
                return
            if succeeded:
                self._num_exported += num_spans
            else:
                self._dropped[EXPORT_FAILED] += num_spans
            has_changed = self._is_failing is succeeded
            self._is_failing = not succeeded
        if has_changed and succeeded:
            log.info("spans reach %s again", self._endpoint)
        elif has_changed:
            log.warning(
                "spans don't reach %s and are dropped until they do; --log-level debug says why", self._endpoint
            )
