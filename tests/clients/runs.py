"""How a client's program ended."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """How a program ended and what it wrote."""

    code: int
    stdout: str
    stderr: str
