"""An optimisation must not be observable: same tokens, same logits (to 1e-5), through the whole engine core.

The subjects are the default model and a small random one of every family. Prompts are random tokens; half of the
requests are greedy, the others sampled with a seed.
"""

from collections.abc import Callable

from engine.events import BlockCopied, RequestPreempted
from engine.execution.executor import SamplingRow
from engine.sampling.sampler import TorchSampler
from engine.sequence import EngineRequest, Sequence
from tests.equivalence.conftest import Subject
from tests.support.recorded_engine import EngineRun, request, run_requests

Check = Callable[[str, float], None]


def workload(subject: Subject, lengths: list[int], max_tokens: int) -> list[EngineRequest]:
    return [
        request(
            f"r{i}",
            subject.prompt(length, seed=i),
            max_tokens,
            temperature=0.9 * (i % 2),
            top_p=0.95 if i % 4 == 3 else 1.0,
            seed=i,
        )
        for i, length in enumerate(lengths)
    ]


def run(subject: Subject, *waves: list[EngineRequest], num_blocks: int = 0, **settings: object) -> EngineRun:
    result = run_requests(
        subject.executor,
        subject.vocab_size,
        waves,
        block_size=subject.block_size,
        num_blocks=num_blocks or subject.num_blocks,
        **settings,  # type: ignore[arg-type]
    )
    assert result.errors == {}
    return result


def test_batched_equals_sequential(subject: Subject, check_difference: Check) -> None:
    size = subject.block_size
    requests = workload(subject, [1, 2, size - 1, size, size + 1, 3 * size, 3 * size + 2, 7], 4)
    sequential = run(subject, *([one] for one in requests))
    for budget in (512, 24):
        batched = run(subject, requests, max_num_batched_tokens=budget)
        assert batched.tokens == sequential.tokens
        check_difference(f"batched = sequential, {subject.name}", batched.largest_difference(sequential))


def test_chunked_equals_one_shot(subject: Subject, check_difference: Check) -> None:
    size = subject.block_size
    requests = workload(subject, [subject.prompt_blocks[-1] * size + 3], 3)
    whole = run(subject, requests)
    for chunk in (*range(1, size + 2), 64):
        chunked = run(subject, requests, max_num_batched_tokens=chunk, max_num_seqs=1)
        assert chunked.tokens == whole.tokens, chunk
        check_difference(f"chunked = one-shot, {subject.name}", chunked.largest_difference(whole))


def test_cached_equals_uncached(subject: Subject, check_difference: Check) -> None:
    size = subject.block_size
    for length in (k * size + offset for k in subject.prompt_blocks for offset in (-1, 0, 1)):
        prompt = subject.prompt(length, seed=length)
        fork_at = max(1, length - 2)
        other = [*prompt[:fork_at], *subject.prompt(3, seed=99)]
        waves = [[request(f"same {i}", prompt, 3)] for i in range(4)] + [[request("other", other, 3)]]
        uncached = run(subject, *waves)
        cached = run(subject, *waves, prefix_cache=True)
        assert cached.tokens == uncached.tokens
        assert [cached.num_cached[f"same {i}"] for i in range(4)] == [0, length - 1, length - 1, length - 1]
        assert cached.num_cached["other"] == fork_at
        check_difference(f"cached = uncached, {subject.name}", cached.largest_difference(uncached))


def test_preempted_equals_never_preempted(subject: Subject, check_difference: Check) -> None:
    size = subject.block_size
    requests = workload(subject, [2 * size - 2, size + 1, 2 * size, 5], 6)
    roomy = run(subject, requests)
    assert roomy.count(RequestPreempted) == 0
    for prefix_cache in (False, True):
        tight = run(subject, requests, num_blocks=7, prefix_cache=prefix_cache)
        assert tight.count(RequestPreempted) > 0
        assert tight.tokens == roomy.tokens
        check_difference(f"preempted = not, {subject.name}", tight.largest_difference(roomy))


def test_n_forks_equal_n_single_runs(subject: Subject, check_difference: Check) -> None:
    """A choice's logits are those of a lone request whose prompt is the same text, and give the same tokens.

    The lone request reports its prompt's logits; drawing from them with the choice's index repeats its tokens.
    """
    size = subject.block_size
    n, max_tokens = 3, size // 2 + 2
    sampler = TorchSampler(subject.vocab_size, ())
    for length in (2 * size - 1, 2 * size, 2 * size + 1):
        prompt = subject.prompt(length, seed=length)
        forked = run(subject, [request("forked", prompt, max_tokens, n=n, temperature=1.0, seed=7)])
        assert length % size == 0 or forked.count(BlockCopied) > 0
        assert len({tuple(tokens) for tokens in forked.tokens.values()}) > 1
        for index in range(n):
            tokens = forked.tokens["forked", index]
            single = run(subject, [request("single", prompt + tokens, 1, prompt_logprobs=0)])
            params = request("again", prompt, max_tokens, temperature=1.0, seed=7)
            for step, token in enumerate(tokens):
                position = length + step
                ours, theirs = forked.logits["forked", index, position], single.logits["single", 0, position]
                check_difference(f"n forks = n single runs, {subject.name}", float((ours - theirs).abs().max()))
                row = SamplingRow(logits_row=0, seq=Sequence(params), index=index, position=position)
                assert sampler.sample(theirs[None], [row])[0].token_id == token
