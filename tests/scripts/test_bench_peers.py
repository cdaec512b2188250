"""`scripts/bench.py --peers` without a peer."""

import pytest

from scripts.serving.command import main


def test_comparison_without_a_peer_is_one_line_and_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "--llama-server" in said.err
