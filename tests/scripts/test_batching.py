"""scripts/bench.py without --peers: measures, records, and refuses to print numbers for outputs that differ."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from scripts.batching import NEAR_TIE, OutputsDifferError, compare, main

ROOT = Path(__file__).parents[2]


class Peer:
    """A model whose logits at every position are those given."""

    def __init__(self, logits: list[float]) -> None:
        self._logits = torch.tensor([[logits]])

    def __call__(self, ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self._logits)


@pytest.mark.slow
def test_bench_random_model_writes_a_record_of_equal_outputs(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    options = ["--streams", "3", "--prompt-tokens", "9", "--new-tokens", "4", "--repeats", "2", "--threads", "1"]
    done = subprocess.run(
        [sys.executable, "scripts/bench.py", "--model", "random:tiny", *options, "--json", str(record)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "outputs equal" in done.stdout
    written = json.loads(record.read_text())
    assert written["bench"] == "batching"
    assert {name: len(rates) for name, rates in written["output_tokens_per_s"].items()} == {
        "1 stream": 2,
        "3 streams": 2,
        "transformers, one at a time": 2,
    }
    assert written["over_one_stream"] > 0
    assert written["machine"]["threads"] == 1


def test_bench_impossible_option_is_refused_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--streams", "0"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "--streams must be at least 1, got 0" in capsys.readouterr().err


def test_compare_different_token_is_an_error() -> None:
    with pytest.raises(OutputsDifferError, match=r"prompt 1, token 2: 1, expected 0, 0\.5000 apart"):
        compare([[3], [4, 5, 0]], [[3], [4, 5, 1]], "arm", Peer([1.0, 0.5, 0.0]), [[7], [8]])


def test_compare_near_tie_is_allowed_and_the_rest_not_compared() -> None:
    compare([[4, 5, 0, 9]], [[4, 5, 1, 2]], "arm", Peer([1.0, 1.0 - NEAR_TIE / 2, 0.0]), [[8]])


def test_compare_missing_token_is_an_error() -> None:
    with pytest.raises(OutputsDifferError, match="2 tokens, expected 3"):
        compare([[4, 5, 0]], [[4, 5]], "arm", Peer([1.0]), [[8]])
