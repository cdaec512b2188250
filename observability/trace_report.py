"""What a trace check found, as data for `--json` and as text for people."""

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """The first event that breaks an invariant; `event_type` is "" when the end of the trace does."""

    seq: int
    step: int
    event_type: str
    reason: str


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check.

    Attributes:
        ok: no violation.
        violation: the first one, or None.
        num_events, num_steps: read up to the violation, or to the end.
        num_unknown_events: of types this version doesn't know; kept, not checked.
        from_start: whether the trace begins with the engine's first event.
        from_snapshot: whether it begins with a snapshot of what the engine held, which is as good. With neither, blocks
            and requests are adopted as they are first seen, which proves less.
        truncated: the file ends within a line.
        num_lives: engines whose events the trace holds, one after another (a restart begins a new one).
        num_received, num_adopted, num_in_flight, num_ended: requests that arrived, that the snapshot has, that are
            left, that ended (by terminal event).
        num_blocks: blocks at the end, by where they are (free, referenced, cached, lost, unknown).
        num_kv_events: by event type.
        num_preemptions, num_futile_resumes: choices preempted; resumed and preempted again without a token between.
        num_stalls: `stalled` events, which a correct engine never emits.
    """

    ok: bool
    violation: Violation | None
    num_events: int
    num_steps: int
    num_unknown_events: int
    from_start: bool
    from_snapshot: bool
    truncated: bool
    num_lives: int
    num_received: int
    num_adopted: int
    num_in_flight: int
    num_ended: dict[str, int]
    num_blocks: dict[str, int]
    num_kv_events: dict[str, int]
    num_preemptions: int
    num_futile_resumes: int
    num_stalls: int

    def to_text(self) -> str:
        """Return the report for a terminal, a few lines."""
        begin = "starts in the middle: blocks and requests adopted as first seen"
        if self.from_start or self.from_snapshot:
            begin = "complete" if self.from_start else "starts with a snapshot"
        ended = ", ".join(f"{count} {name}" for name, count in sorted(self.num_ended.items())) or "none ended"
        adopted = f" after {self.num_adopted} in the snapshot" if self.from_snapshot else ""
        blocks = ", ".join(f"{count} {name}" for name, count in self.num_blocks.items() if count)
        kv = ", ".join(f"{count} {name.removeprefix('block_')}" for name, count in sorted(self.num_kv_events.items()))
        lines = [
            f"{self.num_events} events, {self.num_steps} steps, {self.num_lives} engine lives ({begin})",
            f"requests: {self.num_received} received{adopted}: {ended}, {self.num_in_flight} in flight",
            f"blocks: {blocks}",
            f"KV events: {kv or 'none'}",
            f"preemptions: {self.num_preemptions} ({self.num_futile_resumes} before the resumed choice made a token)",
        ]
        if self.num_stalls:
            lines.append(f"stalls: {self.num_stalls}")
        if self.num_unknown_events:
            lines.append(f"unknown events, kept and not checked: {self.num_unknown_events}")
        if self.truncated:
            lines.append("the file ends within a line: its writer was cut off")
        if self.violation is None:
            lines.append("ok: every invariant holds")
        else:
            at = f"event {self.violation.seq} `{self.violation.event_type}`" if self.violation.event_type else "the end"
            lines.append(f"BROKEN at {at}, step {self.violation.step}: {self.violation.reason}")
        return "\n".join(lines)
