"""The names under which Prometheus stores what the project declares."""

from observability.metrics import Metrics


def sample_names() -> set[str]:
    """Return every sample name of an exposition: of a histogram `..._bucket`, `..._sum` and `..._count`."""
    text, _ = Metrics().render()
    families = [line.split()[2:4] for line in text.decode().splitlines() if line.startswith("# TYPE ")]
    names: set[str] = set()
    for name, kind in families:
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names
