"""The Grafana dashboard: its JSON is what the code builds, and every panel asks for what exists and explains itself."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from observability.grafana.build import build_dashboard
from observability.grafana.panels import ROWS, Panel
from tests.support.declared_metrics import sample_names
from tests.support.promql import rules, selectors

FOLDER = Path(__file__).resolve().parents[3] / "observability" / "grafana"
PANELS = [panel for row in ROWS for panel in row.panels]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    committed: dict[str, Any] = json.loads((FOLDER / "pellucid.json").read_text())
    return committed


def test_dashboard_committed_is_what_the_code_builds() -> None:
    assert (FOLDER / "pellucid.json").read_text() == build_dashboard()


def test_dashboard_has_the_rows_and_enough_panels(document: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in document["panels"] if panel["type"] == "row"]

    assert titles == ["Overview", "Latency", "Scheduler", "KV cache", "Prefix cache", "Speculation", "HTTP", "Host"]
    assert len([panel for panel in document["panels"] if panel["type"] != "row"]) >= 20


def test_dashboard_shares_its_crosshair_and_lets_choose_instance_and_model(document: dict[str, Any]) -> None:
    assert document["graphTooltip"] == 1
    assert [variable["name"] for variable in document["templating"]["list"]] == ["datasource", "model", "instance"]


def test_dashboard_panels_have_ids_of_their_own_and_do_not_overlap(document: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in document["panels"]]
    cells: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        grid = panel["gridPos"]
        own = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not own & cells, panel["title"]
        cells |= own

    assert len(set(ids)) == len(ids)


def test_dashboard_latency_panels_ask_for_exemplars(document: dict[str, Any]) -> None:
    with_exemplars = {
        panel["title"] for panel in document["panels"] for target in panel.get("targets", []) if target.get("exemplar")
    }

    assert {"Time to first token", "Inter-token latency", "Request duration"} <= with_exemplars


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_panel_asks_for_declared_metrics_and_says_what_to_conclude(panel: Panel) -> None:
    declared = sample_names() | {rule["record"] for rule in rules("recording_rules.yml")}

    assert panel.conclude.endswith(".")
    assert panel.queries
    for query in panel.queries:
        found = selectors(query.expr)
        assert found
        for name, matchers in found:
            assert name in declared
            assert 'instance=~"$instance"' in matchers
        if "histogram_quantile" in query.expr:
            assert re.search(r"sum by \(le(, \w+)*\)", query.expr)


def test_provisioning_links_exemplars_to_the_replay_of_the_request() -> None:
    datasource = yaml.safe_load((FOLDER / "provisioning" / "datasources" / "pellucid.yml").read_text())["datasources"][
        0
    ]
    provider = yaml.safe_load((FOLDER / "provisioning" / "dashboards" / "pellucid.yml").read_text())["providers"][0]
    (link,) = datasource["jsonData"]["exemplarTraceIdDestinations"]

    assert link["name"] == "trace_id"
    assert link["url"] == "http://127.0.0.1:3100/#replay?trace_id=$${__value.raw}"  # $$: the file's escape of a dollar
    assert provider["type"] == "file"
