"""The collector example: it can be read, its pipelines name what it declares, and it listens where docs send spans to.

No collector can be installed where these tests run, so none reads it here.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from observability.otlp_settings import otlp_settings
from service.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "observability" / "collector" / "config.yaml").read_text())


@pytest.mark.parametrize("kind", ["receivers", "processors", "exporters"])
def test_pipelines_use_exactly_what_is_declared(kind: str) -> None:
    used = {name for pipeline in CONFIG["service"]["pipelines"].values() for name in pipeline[kind]}
    assert used == set(CONFIG[kind])


def test_collector_listens_where_the_page_sends_spans_and_scrapes_the_default_port() -> None:
    endpoint = CONFIG["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    line = f"OTEL_EXPORTER_OTLP_ENDPOINT=http://{endpoint}"
    assert line in (ROOT / "docs" / "tracing.md").read_text()
    name, value = line.split("=")
    assert otlp_settings({name: value}).traces.endpoint == f"http://{endpoint}/v1/traces"
    (job,) = CONFIG["receivers"]["prometheus"]["config"]["scrape_configs"]
    defaults = ServiceSettings()
    assert job["static_configs"] == [{"targets": [f"{defaults.host}:{defaults.port}"]}]
