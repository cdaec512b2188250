"""The torch executor against the oracle, on every family, and its own invariances."""

import numpy as np
import pytest
import torch

from engine.errors import ConfigError
from engine.execution.forward_batch import build_forward_batch
from engine.execution.reference import ReferenceExecutor
from engine.execution.torch_executor import TorchExecutor
from engine.model.spec import DecoderSpec
from engine.model.weights import Weights
from engine.schedule import Schedule
from tests.support.paged_runs import PagedRun
from tests.support.tiny_models import TINY_SPECS, FloatTensor, tiny_weights

BLOCK_SIZE = 4
NUM_BLOCKS = 64


def prompt(length: int, *, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 131, length)]


def torch_run(spec: DecoderSpec, *, seed: int = 1) -> PagedRun:
    executor = TorchExecutor(spec, tiny_weights(spec), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, device="cpu")
    return PagedRun(executor, BLOCK_SIZE, NUM_BLOCKS, seed=seed)


def exact_run(spec: DecoderSpec) -> PagedRun:
    executor = ReferenceExecutor(
        spec, tiny_weights(spec), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=torch.float64
    )
    return PagedRun(executor, BLOCK_SIZE, NUM_BLOCKS)


def largest_difference(a: PagedRun, b: PagedRun) -> float:
    assert a.logits.keys() == b.logits.keys()
    return max(float((a.logits[key].double() - b.logits[key].double()).abs().max()) for key in a.logits)


@pytest.fixture(params=list(TINY_SPECS))
def spec(request: pytest.FixtureRequest) -> DecoderSpec:
    return TINY_SPECS[request.param]


def test_torch_executor_single_sequence_matches_exact_reference(spec: DecoderSpec) -> None:
    ours, exact = torch_run(spec), exact_run(spec)
    mine, oracle = (run.add("a", prompt(37), all_rows=True) for run in (ours, exact))
    assert ours.generate(mine, 20) == exact.generate(oracle, 20)
    assert largest_difference(ours, exact) < 1e-4


def test_reference_executor_float32_matches_float64(spec: DecoderSpec) -> None:
    executor = ReferenceExecutor(spec, tiny_weights(spec), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    single, exact = PagedRun(executor, BLOCK_SIZE, NUM_BLOCKS), exact_run(spec)
    assert single.generate(single.add("a", prompt(23)), 8) == exact.generate(exact.add("a", prompt(23)), 8)
    assert largest_difference(single, exact) < 1e-4


def test_torch_executor_mixed_batch_equals_sequences_alone(spec: DecoderSpec) -> None:
    """Decodes of many lengths, prefill chunks and one-token chunks share a step; nobody notices."""
    lengths = {"a": 1, "b": 2, "c": 3, "d": 17, "e": 40, "f": 63}
    alone = torch_run(spec)
    for name, length in lengths.items():
        alone.generate(alone.add(name, prompt(length, seed=length)), 6)
    together = torch_run(spec, seed=9)
    seqs = {name: together.add(name, prompt(length, seed=length)) for name, length in lengths.items()}
    chunk = {"a": 1, "b": 1, "c": 3, "d": 5, "e": 13, "f": 32}
    while any(len(seq.output_token_ids) < 6 for seq in seqs.values()):
        shares = []
        for name, seq in seqs.items():
            if len(seq.output_token_ids) < 6:
                shares.append((seq, min(chunk[name], seq.num_tokens - seq.num_computed_tokens)))
        together.step(*shares)
        for seq, _ in shares:
            if seq.num_computed_tokens == seq.num_tokens:
                together.append_greedy(seq)
    assert largest_difference(alone, together) < 1e-5


@pytest.mark.parametrize("chunk", [1, 2, 3, BLOCK_SIZE, BLOCK_SIZE + 1, 64])
def test_torch_executor_chunked_prefill_equals_one_shot(spec: DecoderSpec, chunk: int) -> None:
    whole, chunked = torch_run(spec), torch_run(spec, seed=2)
    expected = whole.generate(whole.add("a", prompt(70), all_rows=True), 5)
    assert chunked.generate(chunked.add("a", prompt(70), all_rows=True), 5, chunk=chunk) == expected
    assert largest_difference(whole, chunked) < 1e-5


def test_torch_executor_long_chunk_is_tiled_without_change() -> None:
    """More queries than one tile, ending inside a tile, and a pool that is nearly full."""
    spec = TINY_SPECS["llama3"]
    ours, exact = torch_run(spec), exact_run(spec)
    mine, oracle = (run.add("a", prompt(251), all_rows=True) for run in (ours, exact))
    assert ours.generate(mine, 2) == exact.generate(oracle, 2)
    assert largest_difference(ours, exact) < 1e-4


def test_torch_executor_decodes_of_very_different_lengths_match_reference() -> None:
    spec = TINY_SPECS["qwen3"]
    executor = TorchExecutor(spec, tiny_weights(spec), num_blocks=512, block_size=BLOCK_SIZE, device="cpu")
    exact = ReferenceExecutor(spec, tiny_weights(spec), num_blocks=512, block_size=BLOCK_SIZE, dtype=torch.float64)
    runs = [PagedRun(executor, BLOCK_SIZE, 512), PagedRun(exact, BLOCK_SIZE, 512)]
    for run in runs:
        seqs = [run.add(str(length), prompt(length, seed=length)) for length in (900, 3, 400, 130)]
        run.step(*((seq, seq.num_tokens) for seq in seqs))
        for _ in range(3):
            for seq in seqs:
                run.append_greedy(seq)
            run.step(*((seq, 1) for seq in seqs))
    assert largest_difference(*runs) < 1e-4


def test_executors_copied_block_serves_as_own_prefix(spec: DecoderSpec) -> None:
    """A fork takes full blocks by reference and a partly filled one by copy, then writes into its copy."""
    for run in (torch_run(spec), exact_run(spec)):
        plain = run.add("plain", prompt(10))
        expected = run.generate(plain, 3)
        fork = run.add("fork", prompt(10))
        copy = 60
        fork.block_table = [*plain.block_table[:2], copy]
        fork.num_computed_tokens = 9
        run.step((fork, 1), copies=((plain.block_table[2], copy),))
        run.append_greedy(fork)
        run.step((fork, 1))
        run.append_greedy(fork)
        assert fork.output_token_ids == expected[:2]


def test_executors_block_that_is_source_and_target_is_read_before_written(spec: DecoderSpec) -> None:
    for run in (torch_run(spec), exact_run(spec)):
        first, second = run.add("first", prompt(9)), run.add("second", prompt(9, seed=5))
        expected = [run.generate(first, 2), run.generate(second, 2)]
        moved = [run.add("moved first", prompt(9)), run.add("moved second", prompt(9, seed=5))]
        spare = run.add("spare", prompt(12))
        run.step((spare, 12))
        a, b, c = first.block_table[2], second.block_table[2], spare.block_table[2]
        moved[0].block_table, moved[1].block_table = [*first.block_table[:2], b], [*second.block_table[:2], c]
        for seq in moved:
            seq.num_computed_tokens = 8
        run.step((moved[0], 1), (moved[1], 1), copies=((a, b), (b, c)))
        for seq, tokens in zip(moved, expected, strict=True):
            assert run.append_greedy(seq) == tokens[0]


@pytest.mark.parametrize("name", ["llama3", "qwen2"])
def test_torch_executor_foreign_nan_in_stale_slots_stays_out(name: str) -> None:
    """Blocks come back with another sequence's NaN in them; only a sequence's own slots are read."""
    spec = TINY_SPECS[name]
    assert not spec.tie_word_embeddings  # or the NaN row would be part of every logits row
    weights = tiny_weights(spec)
    embed = weights["embed.weight"].to_float32()
    embed[130] = np.nan
    tensors = dict(weights.tensors)
    tensors["embed.weight"] = FloatTensor(name="embed.weight", values=embed)
    executor = TorchExecutor(spec, Weights(tensors), num_blocks=4, block_size=BLOCK_SIZE, device="cpu")
    clean = torch_run(spec)
    expected = clean.generate(clean.add("a", prompt(5)), 4)
    run = PagedRun(executor, BLOCK_SIZE, 4)
    poison = run.add("poison", [130] * 16)
    run.step((poison, 16))
    assert torch.isnan(run.last_logits(poison)).any()
    seq = run.add("a", prompt(5))
    seq.block_table = [2, 1]
    run.step((seq, 5))
    for _ in range(3):
        run.append_greedy(seq)
        run.step((seq, 1))
    run.append_greedy(seq)
    assert seq.output_token_ids == expected


def test_torch_executor_step_without_logits_returns_no_rows(spec: DecoderSpec) -> None:
    run = torch_run(spec)
    seq = run.add("a", prompt(8))
    run.step((seq, 5))
    assert run.logits == {}


def test_torch_executor_empty_batch_returns_no_rows() -> None:
    spec = TINY_SPECS["llama"]
    executor = TorchExecutor(spec, tiny_weights(spec), num_blocks=4, block_size=4, device="cpu")
    batch, _ = build_forward_batch(Schedule(entries=()), block_size=4)
    assert executor.execute(batch).shape == (0, 131)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_torch_executor_half_precision_stays_near_reference(dtype: str, spec: DecoderSpec) -> None:
    executor = TorchExecutor(
        spec, tiny_weights(spec), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype, device="cpu"
    )
    half, exact = PagedRun(executor, BLOCK_SIZE, NUM_BLOCKS), exact_run(spec)
    for run in (half, exact):
        run.step((run.add("a", prompt(30), all_rows=True), 30))
    scale = max(float(row.abs().max()) for row in exact.logits.values())
    assert largest_difference(half, exact) < 0.1 * scale


def test_torch_executor_unknown_device_is_refused_by_name() -> None:
    spec = TINY_SPECS["llama"]
    with pytest.raises(ConfigError, match="`device` must be auto, cpu or cuda"):
        TorchExecutor(spec, tiny_weights(spec), num_blocks=1, block_size=4, device="abacus")


def test_torch_executor_reports_what_it_runs_on() -> None:
    spec = TINY_SPECS["llama"]
    executor = TorchExecutor(spec, tiny_weights(spec), num_blocks=8, block_size=4, device="cpu")
    assert (executor.name, executor.dtype_name, executor.device.type) == ("torch", "float32", "cpu")
    assert executor.kv_cache_bytes == 8 * 4 * spec.kv_bytes_per_token_fp32


def test_torch_executor_equal_chunks_of_different_histories_equal_sequences_alone(spec: DecoderSpec) -> None:
    """Chunks of one length share a group although some continue a longer sequence."""
    lengths = {"a": 12, "b": 30, "c": 48, "d": 12}
    alone = torch_run(spec)
    for name, length in lengths.items():
        alone.generate(alone.add(name, prompt(length, seed=length)), 1, chunk=6)
    together = torch_run(spec, seed=9)
    seqs = [together.add(name, prompt(length, seed=length)) for name, length in lengths.items()]
    while any(seq.num_computed_tokens < seq.num_tokens for seq in seqs):
        together.step(*((seq, 6) for seq in reversed(seqs) if seq.num_computed_tokens < seq.num_tokens))
    assert largest_difference(alone, together) < 1e-5
