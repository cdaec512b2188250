"""docs/metrics.md, written from the declarations: python -m observability.metrics_doc > docs/metrics.md."""

import sys

from observability.instruments import Counter, Gauge, Histogram, Info, Instrument, Label
from observability.metrics import Metrics
from observability.vllm_names import PREFIX as VLLM_PREFIX
from observability.vllm_names import VLLM_NAMES

_HEAD = """\
# Metrics

Written by `python -m observability.metrics_doc` from `observability/metrics.py`; a test fails when it is stale.

`GET /metrics` answers in the Prometheus text format, and in OpenMetrics, with exemplars, where `Accept` asks for
`application/openmetrics-text`. Units are seconds, tokens and blocks. An exemplar names a trace: `trace_id`.
Every count is made in the step that produced it, from the engine's events, so rates are true while requests run.
Requests: received = ended + rejected + in flight. Blocks: free + referenced + cached = all. Attributed seconds by cause
sum to the durations.

| metric | type | labels | exemplars | meaning |
|---|---|---|---|---|
"""

_LABELS_HEAD = """
## Labels

Closed sets; what is not in one is counted under the last value in brackets.

| metric | label | values |
|---|---|---|
"""

_BOUNDS_HEAD = """
## Bucket bounds

| metric | upper bounds, +Inf implied |
|---|---|
"""

_PROCESS = """
## Process

`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_open_fds`,
`process_max_fds` and `process_start_time_seconds` describe the service's process (Linux only); the engine runs in
another one.
"""

_VLLM_HEAD = """
## vLLM's names

With `--metrics-compat vllm` these are exposed too, with vLLM's labels `model_name` and `engine`, projected from the
metrics above.

| name | type | is | difference |
|---|---|---|---|
"""

MAX_VALUES = 20


def metrics_page() -> str:
    """Return the whole page."""
    instruments = list(Metrics(routes=("a route template",)).instruments())
    lines = [_HEAD]
    for each in instruments:
        labels = ", ".join(f"`{name}`" for name in each.label_names)
        exemplars = "yes" if isinstance(each, Histogram) and each.has_exemplars else ""
        lines.append(f"| `{each.name}` | {_type_of(each)} | {labels} | {exemplars} | {each.help} |\n")
    lines.append(_LABELS_HEAD)
    for each in instruments:
        if isinstance(each, Instrument):
            lines += [f"| `{each.name}` | `{label.name}` | {_values(label)} |\n" for label in each.labels]
    lines.append(_BOUNDS_HEAD)
    for each in instruments:
        if isinstance(each, Histogram):
            lines.append(f"| `{each.name}` | {', '.join(f'{bound:g}' for bound in each.bounds)} |\n")
    lines += [_PROCESS, _VLLM_HEAD]
    for name in VLLM_NAMES:
        suffix = "_total" if name.kind == "counter" else ""
        lines.append(f"| `{VLLM_PREFIX}{name.name}{suffix}` | {name.kind} | `pellucid_{name.ours}` | {name.note} |\n")
    return "".join(lines)


def _type_of(instrument: Counter | Gauge | Histogram | Info) -> str:
    return "info" if isinstance(instrument, Info) else type(instrument).__name__.lower()


def _values(label: Label) -> str:
    values, other = label.values, label.other
    shown = ", ".join(values) if len(values) <= MAX_VALUES else f"{values[0]} to {values[-1]}"
    return f"{shown} [{other}]" if other and other not in values else shown


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
