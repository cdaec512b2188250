"""Prometheus' own configuration, rendered from the ports in use, so that it always scrapes the stack that runs."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any


def rule_files() -> list[Path]:
    """Return the recording rules and the alerts that ship with the project."""
    folder = Path(str(files("observability"))) / "prometheus"
    return [folder / "recording_rules.yml", folder / "alerts.yml"]


def render_prometheus_config(
    *,
    service_address: str,
    scrape_interval_s: float = 2.0,
    rules: list[Path] | None = None,
    api_key_file: Path | None = None,
    alertmanager_address: str = "",
) -> str:
    """Return a prometheus.yml (JSON is YAML) that scrapes the service.

    Args:
        service_address: host:port of the service.
        scrape_interval_s: seconds between scrapes, and between evaluations of the rules.
        rules: rule files, those of `rule_files` unless others are given.
        api_key_file: holds the one key that the service asks for, if it asks for any.
        alertmanager_address: host:port of an Alertmanager, "" for none.
    """
    interval = f"{round(scrape_interval_s * 1000)}ms"
    job: dict[str, Any] = {
        "job_name": "pellucid",
        "metrics_path": "/metrics",
        "static_configs": [{"targets": [service_address]}],
    }
    if api_key_file is not None:
        job["authorization"] = {"type": "Bearer", "credentials_file": str(api_key_file)}
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(path) for path in (rule_files() if rules is None else rules)],
        "scrape_configs": [job],
    }
    if alertmanager_address:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager_address]}]}]}
    return json.dumps(config, indent=2) + "\n"
