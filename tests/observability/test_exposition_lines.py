"""Our lines against prometheus_client's own, byte for byte, in both formats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest as text_format
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import ALLOWUTF8, DOTS
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_format
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from observability.exposition import AnyInstrument, CollectorPage, Encode, Exposition
from observability.exposition_lines import number
from observability.instruments import (
    Counter,
    CounterSeries,
    Gauge,
    GaugeSeries,
    Histogram,
    HistogramSeries,
    Info,
    Label,
)
from observability.metrics import Metrics
from tests.support.event_script import Script

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1e-05, 999999.0, 999999.9999999999, 1e6, 1234567.0, 1e15, 1e16, 1e22, 5e-324, 1e308]),
)
TEXTS = st.one_of(st.text(max_size=8), st.text(alphabet='"\\\n\r\x85\u2028 #{},=é', max_size=8))
HELPS = st.text(max_size=20)
BOUNDS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5, unique=True).map(
    lambda bounds: tuple(sorted(bounds))
)


@dataclass(frozen=True)
class Format:
    name: str
    encode: Encode
    shows_exemplars: bool

    def exposition(self, instruments: Sequence[AnyInstrument]) -> Exposition:
        return Exposition(instruments, self.encode, shows_exemplars=self.shows_exemplars)

    def expected(self, instruments: Sequence[AnyInstrument]) -> bytes:
        """What the library writes of the same state."""
        return self.encode(Families([each.family() for each in instruments])).removesuffix(b"# EOF\n")


class Families:
    """Given families as prometheus_client's encoders want them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


FORMATS = (
    Format("text", text_format, shows_exemplars=False),
    Format("text with dots", partial(text_format, escaping=DOTS), shows_exemplars=False),
    Format("openmetrics", partial(openmetrics_format, escaping=ALLOWUTF8), shows_exemplars=True),
)
in_each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@st.composite
def labels(draw: st.DrawFn) -> tuple[Label, ...]:
    names = draw(st.lists(st.sampled_from(["a", "kind", "zone", "m_n"]), max_size=3, unique=True))
    return tuple(Label(name, tuple(draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True)))) for name in names)


@st.composite
def instruments(draw: st.DrawFn) -> list[Counter | Gauge | Histogram]:
    made: list[Counter | Gauge | Histogram] = []
    for i in range(draw(st.integers(1, 3))):
        match draw(st.sampled_from(["counter", "gauge", "histogram"])):
            case "counter":
                made.append(Counter(f"c{i}_total", draw(HELPS), *draw(labels())))
            case "gauge":
                made.append(Gauge(f"g{i}", draw(HELPS), *draw(labels())))
            case _:
                made.append(Histogram(f"h{i}", draw(HELPS), *draw(labels()), bounds=draw(BOUNDS)))
    return made


def change(draw: st.DrawFn, instrument: Counter | Gauge | Histogram) -> None:
    """Do one thing to one series, as the recorder would."""
    series = instrument.at(*(draw(st.sampled_from(label.values)) for label in instrument.labels))
    match series:
        case CounterSeries():
            series.inc(draw(NUMBERS))
        case GaugeSeries():
            series.set(draw(NUMBERS))
        case HistogramSeries():
            if draw(st.booleans()):
                times = draw(st.integers(1, 3) | st.sampled_from([999_999, 10**6, 10**9]))
                series.observe(draw(NUMBERS), times=times, trace_id=draw(TEXTS), wall=draw(st.floats(0, 2e9)))
            else:
                kept = draw(TEXTS)
                series.forget_exemplars(lambda trace_id: trace_id < kept)


@in_each_format
@given(data=st.data())
def test_random_instruments_are_written_as_the_library_writes_them(form: Format, data: st.DataObject) -> None:
    made = data.draw(instruments())
    exposition = form.exposition(made)
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(0, 4))):
            change(data.draw, data.draw(st.sampled_from(made)))
        assert exposition.body() == form.expected(made)


class Meter(Collector):
    """Two families without labels, as the library's collector of the process has them."""

    def __init__(self) -> None:
        self.value = 0.0

    def collect(self) -> list[Metric]:
        return [
            GaugeMetricFamily("open_fds", "Files \\ that are\nopen.", value=self.value),
            CounterMetricFamily("cpu_seconds_total", "Time.", value=self.value / 3),
        ]


@in_each_format
def test_other_collectors_gauges_and_counters_are_written_as_the_library_writes_them(form: Format) -> None:
    meter = Meter()
    page = CollectorPage(meter, form.encode)
    for value in (0.0, 7.0, 2.5e7, float("inf")):
        meter.value = value
        assert page.body() == form.encode(Families(meter.collect())).removesuffix(b"# EOF\n")


@given(NUMBERS)
def test_number_is_written_as_the_library_writes_it(value: float) -> None:
    assert number(value) == floatToGoString(value)


@in_each_format
def test_whole_metrics_set_after_a_load_is_written_as_the_library_writes_it(form: Format) -> None:
    script = Script()
    made = tuple(script.metrics.instruments())
    exposition = form.exposition(made)
    seen = [exposition.body()]
    script.engine_started()
    for i in range(20):
        request_id = f"r{i}"
        script.at(script.t + 0.3).open(request_id, trace_id=f"{i:032x}" if i % 3 else "")
        script.arrive(request_id, num_prompt_tokens=40)
        script.look_up(request_id, num_prompt_tokens=40, num_matched_tokens=16 * (i % 2))
        script.schedule(request_id, num_cached_tokens=16 * (i % 2))
        script.run_step(0.02 * (1 + i % 5))
        for total in range(1, 6):
            script.at(script.t + 0.01 * total).tokens(request_id, total=total)
            script.recorder.sent_first(request_id, script.t)
        script.finish(request_id, reason=("stop", "length")[i % 2], num_output_tokens=5)
        script.recorder.sent_last(request_id, script.t + 0.001)
        script.metrics.http_observed("/v1/chat/completions", "POST", 200 if i % 4 else 429, 0.1 * i)
        script.metrics.forget_exemplars(lambda trace_id, i=i: int(trace_id, 16) > i - 5)
        script.scrape()
        seen.append(exposition.body())
        assert seen[-1] == form.expected(made)
    assert len(set(seen)) == len(seen)


@in_each_format
def test_series_that_appear_between_scrapes_are_written(form: Format) -> None:
    counter = Counter("x_total", "X.", Label("a", ("1", "2")), Label("b", ("3",)))
    exposition = form.exposition([counter])
    assert exposition.body().count(b"\n") == 2
    counter.at("1", "3").inc()
    assert exposition.body() == form.expected([counter])
    counter.at("2", "3").inc(2)
    assert exposition.body() == form.expected([counter])


@in_each_format
def test_info_is_written_anew_when_its_labels_change(form: Format) -> None:
    info = Info("model_info", "The model.", "model", "executor")
    exposition = form.exposition([info])
    assert exposition.body() == form.expected([info])
    for model in ("a", 'b "quoted" \\ \n'):
        info.set(model=model, executor="c")
        assert exposition.body() == form.expected([info])


def test_number_that_only_changed_its_sign_is_written_anew() -> None:
    gauge = Gauge("x", "X.")
    exposition = FORMATS[0].exposition([gauge])
    gauge.at().set(0.0)
    assert exposition.body().endswith(b"pellucid_x 0.0\n")
    gauge.at().set(-0.0)
    assert exposition.body().endswith(b"pellucid_x -0.0\n")


def test_exemplar_that_is_forgotten_leaves_its_line() -> None:
    histogram = Histogram("x", "X.", bounds=(1.0,))
    exposition = FORMATS[2].exposition([histogram])
    histogram.at().observe(0.5, trace_id=TRACE_ID, wall=12.25)
    assert f'pellucid_x_bucket{{le="1.0"}} 1.0 # {{trace_id="{TRACE_ID}"}} 0.5 12.25\n'.encode() in exposition.body()
    histogram.at().forget_exemplars(lambda _: False)
    assert b'pellucid_x_bucket{le="1.0"} 1.0\n' in exposition.body()


@in_each_format
def test_scrape_has_the_library_write_each_series_only_once(form: Format) -> None:
    calls: list[object] = []

    def counted(encode: Callable[..., bytes], families: object) -> bytes:
        calls.append(families)
        return encode(families)

    metrics = Metrics()
    exposition = Exposition(metrics.instruments(), partial(counted, form.encode), shows_exemplars=form.shows_exemplars)
    exposition.body()
    calls.clear()
    for instrument in metrics.instruments():
        for series in instrument.all_series() if isinstance(instrument, Histogram) else ():
            series.observe(0.01, trace_id=TRACE_ID, wall=1.0)
    metrics.requests.at("stop").inc()
    assert exposition.body() == form.expected(tuple(metrics.instruments()))
    assert calls == []
    metrics.http_observed("/", "GET", 200, 0.1)
    exposition.body()
    assert len(calls) == 1
