"""A load's result as one HTML page that needs nothing else: no script, no font, no network."""

import datetime as dt
from html import escape
from pathlib import Path

import msgspec

from loadtest.cautions import cautions
from loadtest.load_result import LoadResult, RequestResult, StageResult
from loadtest.report_text import COLUMNS, attainment_text, number
from loadtest.stages import label
from loadtest.svg_chart import Series, chart

STYLE = Path(__file__).with_name("report.css")


def html_report(result: LoadResult, *, name: str = "") -> str:
    """Return the page."""
    title = name or label(result.plan.arrivals)
    when = dt.datetime.fromtimestamp(result.started_at, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    about = f"{result.model} at {result.target.base}, {when}, {result.duration_s:.1f} s, {result.stop_reason}"
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE.read_text()}</style>"
    )
    parts = [
        head,
        f"<h1>{escape(title)}</h1><p>{escape(about)}</p>",
        *(f'<p class="caution">{escape(caution)}</p>' for caution in cautions(result)),
        _levels(result) if len(result.stages) > 1 else _cards(result.stages[0]),
        f'<div class="charts">{"".join(_charts(result))}</div>',
        *(_stage(stage) for stage in result.stages),
        f"<h2>Plan</h2><pre>{escape(msgspec.json.format(msgspec.json.encode(result.plan), indent=2).decode())}</pre>",
    ]
    return "\n".join(parts) + "</html>\n"


def _cards(stage: StageResult) -> str:
    first, gaps = stage.metrics["time_to_first_token"], stage.metrics["inter_token_latency"]
    cards = {
        "attainment": attainment_text(stage.attainment),
        "goodput, requests/s": f"{stage.rates.goodput:.2f}",
        "due and done, requests/s": f"{stage.rates.requests_planned:.2f} and {stage.rates.requests_done:.2f}",
        "output tokens/s": f"{stage.rates.output_tokens:.1f}",
        "TTFT p50 / p99, ms": f"{number(first.p50)} / {number(first.p99)}",
        "ITL p50 / p99, ms": f"{number(gaps.p50)} / {number(gaps.p99)}",
    }
    shown = (
        f'<div class="card"><b>{escape(value)}</b><span>{escape(key)}</span></div>' for key, value in cards.items()
    )
    return f'<div class="cards">{"".join(shown)}</div>'


def _levels(result: LoadResult) -> str:
    head = "<tr><th>stage</th><th>requests/s</th><th>output tokens/s</th><th>goodput/s</th><th>attainment</th>"
    rows = [
        f"<tr><td>{escape(stage.label)}</td><td>{stage.rates.requests_done:.2f}</td>"
        f"<td>{stage.rates.output_tokens:.1f}</td><td>{stage.rates.goodput:.2f}</td>"
        f"<td>{escape(attainment_text(stage.attainment))}</td></tr>"
        for stage in result.stages
    ]
    knee = f"<p>{escape(result.knee.why)}</p>" if result.knee else ""
    return f"<table>{head}</tr>{''.join(rows)}</table>{knee}"


def _stage(stage: StageResult) -> str:
    columns = "".join(f"<th>{column}</th>" for column in (*COLUMNS, "n"))
    rows = [
        f"<tr><td>{escape(name.replace('_', ' '))}, {metric.unit}</td>"
        + "".join(f"<td>{number(getattr(metric, column), metric.unit)}</td>" for column in COLUMNS)
        + f"<td>{metric.count}</td></tr>"
        for name, metric in stage.metrics.items()
        if metric.count
    ]
    errors = "".join(f"<li>{times} × {escape(message)}</li>" for message, times in stage.errors.items())
    counts = ", ".join(f"{value} {key.replace('_', '-')}" for key, value in msgspec.to_builtins(stage.counts).items())
    return (
        f"<h2>{escape(stage.label)}</h2><p>{escape(counts)}</p>"
        f"<table><tr><th></th>{columns}</tr>{''.join(rows)}</table><ul>{errors}</ul>"
    )


def _charts(result: LoadResult) -> list[str]:
    live = result.timeline
    measured = [request for request in result.requests if request.status == "ok" and not request.is_warm_up]
    charts = [
        chart(
            "Requests per second",
            [
                Series("due", [(each.elapsed_s, each.rate_asked) for each in live if each.rate_asked is not None]),
                Series("done", [(each.elapsed_s, each.rate_done) for each in live]),
            ],
            x_label="s",
            y_label="requests/s, last seconds",
        ),
        chart(
            "Requests in flight",
            [
                Series("in flight", [(each.elapsed_s, float(each.in_flight)) for each in live]),
                Series("waiting", [(each.elapsed_s, float(each.waiting)) for each in live]),
            ],
            x_label="s",
            y_label="requests",
        ),
        chart(
            "Output tokens per second",
            [Series("tokens/s", [(each.elapsed_s, each.output_tokens_per_s) for each in live])],
            x_label="s",
            y_label="tokens/s, last seconds",
        ),
        chart("TTFT of each request", _ttft_dots(result.requests), x_label="s, when it was due", y_label="ms"),
        chart(
            "How many requests were faster",
            [
                Series("TTFT", _cumulative([request.ttft_s for request in measured])),
                Series("whole answer", _cumulative([request.e2e_s for request in measured])),
            ],
            x_label="ms",
            y_label="% of requests",
        ),
    ]
    if len(result.stages) > 1:
        levels = [(float(stage.concurrency or 0), stage.rates.output_tokens) for stage in result.stages]
        charts.insert(
            0, chart("Throughput of each level", [Series("tokens/s", levels)], x_label="streams", y_label="tokens/s")
        )
    return charts


def _ttft_dots(requests: tuple[RequestResult, ...]) -> list[Series]:
    def dots(*, is_good: bool) -> list[tuple[float, float | None]]:
        return [
            (request.due_s, request.ttft_s * 1e3)
            for request in requests
            if request.ttft_s is not None and request.status == "ok" and request.is_good is is_good
        ]

    return [Series("within the SLOs", dots(is_good=True), True), Series("not", dots(is_good=False), True)]


def _cumulative(seconds: list[float | None]) -> list[tuple[float, float | None]]:
    ascending = sorted(each * 1e3 for each in seconds if each is not None)
    return [(value, 100.0 * (place + 1) / len(ascending)) for place, value in enumerate(ascending)]
