"""Prometheus as a child of the stack: its configuration, rules and, where the service asks for one, its API key."""

from pathlib import Path

from children import Child


def prometheus_child(
    binary: str, *, listen_address: str, service_address: str, key_path: str, artifacts: Path, logs: Path
) -> Child:
    """Write the configuration below `artifacts` and return the child, not started yet."""
    from dashboard.main import first_key
    from observability.prometheus_config import render_prometheus_config

    # A path that is no file is for `pellucid serve` to complain of.
    key = first_key(Path(key_path)) if key_path and Path(key_path).is_file() else ""
    api_key_file = None
    if key:
        api_key_file = artifacts / "prometheus.key"
        api_key_file.touch(mode=0o600)
        api_key_file.write_text(key)
    config = artifacts / "prometheus.yml"
    config.write_text(render_prometheus_config(service_address=service_address, api_key_file=api_key_file))
    command = [binary, f"--config.file={config}", f"--web.listen-address={listen_address}"]
    command += [f"--storage.tsdb.path={artifacts / 'prometheus-data'}", "--storage.tsdb.retention.time=2d"]
    command += ["--enable-feature=exemplar-storage"]
    return Child("prometheus", command, f"http://{listen_address}/-/ready", logs / "prometheus.log", required=False)
