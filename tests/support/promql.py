"""What a PromQL expression selects, found well enough for expressions of our own files."""

import re
from pathlib import Path
from typing import Any

import yaml

PROMETHEUS = Path(__file__).resolve().parents[2] / "observability" / "prometheus"
_SELECTOR = re.compile(r"\b((?:instance:)?(?:pellucid|process)_[a-zA-Z0-9_:]+)(\{[^}]*\})?")


def selectors(expr: str) -> list[tuple[str, str]]:
    """Return (metric name, label matchers with their braces or "") of every vector selector."""
    return [(match.group(1), match.group(2) or "") for match in _SELECTOR.finditer(expr)]


def rules(file_name: str) -> list[dict[str, Any]]:
    """Return the rules of one of the shipped files, of all groups."""
    document = yaml.safe_load((PROMETHEUS / file_name).read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]
