"""Recording rules and alerts: they parse, they fire when they must and only then, and they name what exists."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.declared_metrics import sample_names
from tests.support.promql import PROMETHEUS, rules, selectors

ROOT = Path(__file__).resolve().parents[3]
ALERTS = rules("alerts.yml")
RECORDED = {rule["record"] for rule in rules("recording_rules.yml")}
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)


@needs_promtool
def test_rules_checked_by_promtool_are_valid() -> None:
    done = promtool("check", "rules", "recording_rules.yml", "alerts.yml")

    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_alerts_over_their_series_fire_exactly_where_they_must() -> None:
    done = promtool("test", "rules", "alerts_test.yml")

    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_alerts_over_a_series_that_should_not_fire_are_a_failure(tmp_path: Path) -> None:
    condition = "and on (instance) rate(pellucid_preemptions_total[5m]) > 0"
    text = (PROMETHEUS / "alerts.yml").read_text()
    assert condition in text
    (tmp_path / "alerts.yml").write_text(text.replace(condition, ""))
    for name in ("recording_rules.yml", "alerts_test.yml"):
        shutil.copy(PROMETHEUS / name, tmp_path / name)

    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert "PellucidKvPressure" in done.stdout + done.stderr


def test_alerts_each_have_a_firing_series_and_a_healthy_twin() -> None:
    names = [test["name"] for test in yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]]

    for alert in (rule["alert"] for rule in ALERTS):
        assert any(name.split(",")[0].split(" with ")[0] == f"fires {alert}" for name in names), alert
        assert any(name.startswith(f"healthy twin of {alert},") for name in names), alert


@pytest.mark.parametrize(
    "rule", [*ALERTS, *rules("recording_rules.yml")], ids=lambda r: r.get("alert", r.get("record"))
)
def test_rule_names_only_metrics_that_are_declared(rule: dict[str, str]) -> None:
    declared = sample_names() | RECORDED

    assert [name for name, _ in selectors(rule["expr"]) if name not in declared] == []


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_says_what_it_means_and_where_its_runbook_is(rule: dict[str, dict[str, str]]) -> None:
    annotations = rule["annotations"]
    page, anchor = annotations["runbook_url"].split("#")
    headings = {line[3:].strip().lower() for line in (ROOT / page).read_text().splitlines() if line.startswith("## ")}

    assert annotations["summary"]
    assert annotations["description"]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert anchor == str(rule["alert"]).lower()
    assert anchor in headings


def test_alertmanager_example_routes_both_severities_to_receivers_that_exist() -> None:
    config = yaml.safe_load((PROMETHEUS.parent / "alertmanager" / "alertmanager.yml").read_text())
    receivers = {receiver["name"] for receiver in config["receivers"]}
    routes = [config["route"], *config["route"]["routes"]]

    assert {route["receiver"] for route in routes} == receivers
    assert config["route"]["routes"][0]["matchers"] == ["severity = page"]
