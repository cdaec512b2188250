"""Real text that every Python has: the docstrings of its standard library, always in the same order."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

MIN_CHARACTERS = 80


def docstrings(max_characters: int) -> list[str]:
    """Return docstrings until there are `max_characters`, or fewer where the library has no more."""
    found: list[str] = []
    num_characters = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for text in _of_module(path):
            found.append(text)
            num_characters += len(text)
            if num_characters >= max_characters:
                return found
    return found


def _of_module(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= MIN_CHARACTERS:
                yield text
