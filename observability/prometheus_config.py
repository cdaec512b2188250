"""Prometheus' own configuration, rendered from the ports in use, so that it always scrapes the stack that runs."""

import json


def render_prometheus_config(*, service_address: str, scrape_interval_s: int = 2) -> str:
    """Return a prometheus.yml (JSON is YAML) that scrapes the service.

    Args:
        service_address: host:port of the service.
        scrape_interval_s: seconds between scrapes.
    """
    config = {
        "global": {"scrape_interval": f"{scrape_interval_s}s", "evaluation_interval": f"{scrape_interval_s}s"},
        "scrape_configs": [
            {"job_name": "pellucid", "metrics_path": "/metrics", "static_configs": [{"targets": [service_address]}]}
        ],
    }
    return json.dumps(config, indent=2) + "\n"
