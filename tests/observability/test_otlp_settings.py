"""The OTEL_* variables."""

import pytest

from observability.otlp_settings import OtlpSettings, OtlpSignal, otlp_settings, sampling
from observability.trace_context import Sampling

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}


def test_nothing_is_exported_unless_somebody_says_where_to() -> None:
    assert otlp_settings({}) == OtlpSettings()
    assert otlp_settings({}).traces.endpoint == ""


def test_endpoint_for_all_signals_gets_the_path_of_each() -> None:
    found = otlp_settings(BASE)
    assert found.traces == OtlpSignal("http://collector:4318/v1/traces", (), 10.0)
    assert found.metrics == OtlpSignal("http://collector:4318/v1/metrics", (), 10.0)


def test_endpoint_of_one_signal_is_taken_as_it_is_and_for_that_signal_alone() -> None:
    found = otlp_settings({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://tempo/otlp"})
    assert (found.traces.endpoint, found.metrics.endpoint) == ("https://tempo/otlp", "")


def test_own_headers_and_timeout_of_a_signal_win() -> None:
    common = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20abc", "OTEL_EXPORTER_OTLP_TIMEOUT": "2500"}
    own = {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x=1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "500"}
    found = otlp_settings(BASE | common | own)
    assert (found.traces.headers, found.traces.timeout_s) == ((("x", "1"),), 0.5)
    assert (found.metrics.headers, found.metrics.timeout_s) == ((("authorization", "Basic abc"),), 2.5)
    assert "Basic" not in repr(found)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")],
)
def test_export_of_spans_can_be_switched_off(variable: str, value: str) -> None:
    assert otlp_settings({**BASE, variable: value}).traces.endpoint == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "inf"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ],
)
def test_value_that_cannot_be_used_is_refused_by_name(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=value):
        otlp_settings({**BASE, variable: value})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Sampling(1.0, follows_parent=True)),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, Sampling(0.0, follows_parent=False)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, Sampling(0.0, follows_parent=True)),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"},
            Sampling(0.25, follows_parent=True),
        ),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, Sampling(1.0, follows_parent=False)),
    ],
)
def test_sampler_is_read(environment: dict[str, str], expected: Sampling) -> None:
    assert sampling(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "-1"},
    ],
)
def test_sampler_that_is_not_known_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER"):
        sampling(environment)
