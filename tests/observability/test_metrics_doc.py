"""docs/metrics.md says what the declarations say."""

from pathlib import Path

from observability.metrics import Metrics
from observability.metrics_doc import metrics_page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_page_agrees_with_the_declarations() -> None:
    """After changing a metric: python -m observability.metrics_doc > docs/metrics.md."""
    assert PAGE.read_text(encoding="utf-8") == metrics_page()


def test_page_names_every_metric_and_its_labels() -> None:
    page = metrics_page()
    for each in Metrics().instruments():
        assert f"| `{each.name}` |" in page
        assert all(f"`{name}`" in page for name in each.label_names)
