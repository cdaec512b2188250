"""LLM and the composition root over seeded random models: the whole engine in-process."""

import dataclasses
from pathlib import Path

import pytest

from engine.build import choose_executor, scheduler_config
from engine.config import EngineConfig
from engine.errors import ConfigError, InvalidRequestError
from engine.events import EngineStarted, RequestFinished
from engine.execution.kv_dtype import kv_bytes_per_token
from engine.llm import LLM
from engine.model.random_weights import PRESETS
from engine.sampling_params import SamplingParams
from tests.support import gguf_bytes

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("random:tiny", num_kv_blocks=64, threads=1)


def test_info_says_what_runs(llm: LLM) -> None:
    info = llm.info
    executor = choose_executor(EngineConfig(model="random:tiny"))
    assert (info.architecture, info.executor, info.dtype, info.device) == ("llama", executor, "float32", "cpu")
    assert (info.num_kv_blocks, info.block_size, info.max_model_len) == (64, 16, 1024)
    assert info.kv_dtype in (("float16", "bfloat16") if executor == "native" else ("float32",))
    assert info.kv_cache_bytes == 64 * 16 * kv_bytes_per_token(PRESETS["tiny"], info.kv_dtype)


def test_first_event_is_engine_started_and_the_warm_up_leaves_no_trace() -> None:
    llm = LLM("random:tiny", num_kv_blocks=8, threads=1)
    llm.generate([[1, 2, 3]], GREEDY)
    assert isinstance(llm.events[0], EngineStarted)
    assert llm.events[0].seq == 1
    assert len([event for event in llm.events if isinstance(event, RequestFinished)]) == 1


def test_batched_answers_are_those_of_one_at_a_time(llm: LLM) -> None:
    prompts = [[7, 8, 9], list(range(40)), [500], list(range(100, 117))]
    alone = [llm.generate([prompt], GREEDY)[0].token_ids for prompt in prompts]
    llm.reset_prefix_cache()
    assert [answer.token_ids for answer in llm.generate(prompts, GREEDY)] == alone


def test_repeated_prompt_is_cached_but_for_its_last_token_and_answers_the_same(llm: LLM) -> None:
    llm.reset_prefix_cache()
    answers = [llm.generate([list(range(64))], GREEDY)[0] for _ in range(4)]
    assert [answer.num_cached_tokens for answer in answers] == [0, 63, 63, 63]
    assert len({tuple(answer.token_ids) for answer in answers}) == 1


def test_seeded_choices_differ_and_repeat(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=42, n=3, max_tokens=12, ignore_eos=True)
    first, second = (llm.generate([[1, 2, 3]], params)[0] for _ in range(2))
    assert [choice.token_ids for choice in first.choices] == [choice.token_ids for choice in second.choices]
    assert len({tuple(choice.token_ids) for choice in first.choices}) == 3


def test_prompt_logprobs_are_those_of_a_run_without_cache_and_chunks(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1, ignore_eos=True)
    prompt = list(range(200, 233))
    plain = LLM("random:tiny", num_kv_blocks=64, threads=1, prefix_cache=False)
    chunked = LLM("random:tiny", num_kv_blocks=64, threads=1, max_num_seqs=8, max_num_batched_tokens=8)
    (expected,) = plain.generate([prompt], params)
    assert [entry.chosen.token_id for entry in expected.prompt_logprobs] == prompt[1:]
    for other in (llm, llm, chunked):
        (answer,) = other.generate([prompt], params)
        for ours, theirs in zip(answer.prompt_logprobs, expected.prompt_logprobs, strict=True):
            assert ours.chosen.token_id == theirs.chosen.token_id
            assert ours.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=1e-5)


@pytest.mark.parametrize("swapped", [False, True])
def test_prompt_logprobs_of_overlapping_prompts_do_not_depend_on_their_order(llm: LLM, swapped: bool) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=1, prompt_logprobs=1, ignore_eos=True)
    long, short = list(range(300, 333)), [*range(300, 320), 7, 8]
    llm.reset_prefix_cache()
    alone = {len(prompt): llm.generate([prompt], params)[0] for prompt in (long, short)}
    llm.reset_prefix_cache()
    for prompt in (short, long) if swapped else (long, short):
        (answer,) = llm.generate([prompt], params)
        assert answer.num_cached_tokens == 0
        assert len(answer.prompt_logprobs) == len(prompt) - 1
        for ours, theirs in zip(answer.prompt_logprobs, alone[len(prompt)].prompt_logprobs, strict=True):
            assert ours.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=1e-5)


def test_text_prompts_are_tokenized_and_answers_decoded(llm: LLM) -> None:
    (answer,) = llm.generate(["hello"], GREEDY)
    assert answer.prompt_token_ids == llm.tokenizer.encode("hello")
    assert answer.text == llm.tokenizer.decode(answer.token_ids)


def test_each_prompt_can_have_its_own_settings(llm: LLM) -> None:
    lengths = [1, 5, 3]
    params = [SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True) for length in lengths]
    answers = llm.generate([[1, 2]] * 3, params)
    assert [len(answer.token_ids) for answer in answers] == lengths


def test_request_that_cannot_fit_raises_and_leaves_nothing_behind(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="holds at most 1024 tokens"):
        llm.generate([[1, 2], [1] * 2000], GREEDY)
    (answer,) = llm.generate([[1, 2]], GREEDY)
    assert len(answer.token_ids) == 8


@pytest.mark.parametrize("prompt", [[512], [-1]])
def test_token_outside_the_vocabulary_is_refused(llm: LLM, prompt: list[int]) -> None:
    with pytest.raises(InvalidRequestError, match=r"must lie in 0\.\.511"):
        llm.generate([prompt], GREEDY)


def test_reference_executor_gives_the_same_tokens(llm: LLM) -> None:
    reference = LLM("random:tiny", num_kv_blocks=64, executor="reference")
    prompts = [[7, 8, 9], list(range(40))]
    assert reference.info.executor == "reference"
    assert [a.token_ids for a in reference.generate(prompts, GREEDY)] == [
        a.token_ids for a in llm.generate(prompts, GREEDY)
    ]


# --- derived settings ------------------------------------------------------------------------------------------------


def config(**settings: object) -> EngineConfig:
    return EngineConfig(model="random:tiny", device="cpu", **{"executor": "torch", **settings})  # type: ignore[arg-type]


def test_pool_is_what_the_given_bytes_hold() -> None:
    block_bytes = 16 * PRESETS["tiny"].kv_bytes_per_token_fp32
    assert scheduler_config(config(kv_cache_bytes=10 * block_bytes + 5), PRESETS["tiny"]).num_kv_blocks == 10


def test_pool_holds_twice_as_much_in_half_precision() -> None:
    block_bytes = 16 * PRESETS["tiny"].kv_bytes_per_token_fp32
    derived = scheduler_config(config(kv_cache_bytes=10 * block_bytes, dtype="bfloat16"), PRESETS["tiny"])
    assert derived.num_kv_blocks == 20


def test_pool_is_no_larger_than_all_seats_can_use() -> None:
    derived = scheduler_config(config(max_num_seqs=2, kv_cache_bytes=1 << 30), PRESETS["tiny"])
    assert derived.num_kv_blocks == 2 * 2048 // 16


@pytest.mark.parametrize(("max_num_seqs", "num_tokens"), [(2, 2048), (64, 64 * 136)])
def test_pool_of_no_given_size_holds_a_full_length_or_a_short_chat_for_every_seat(
    max_num_seqs: int, num_tokens: int
) -> None:
    derived = scheduler_config(config(max_num_seqs=max_num_seqs), PRESETS["tiny"])
    assert derived.num_kv_blocks == num_tokens // 16


def test_pool_of_no_given_size_takes_at_most_a_gibibyte() -> None:
    spec = dataclasses.replace(PRESETS["tiny"], num_layers=400, max_position_embeddings=100_000)
    derived = scheduler_config(config(), spec)
    block_bytes = 16 * spec.kv_bytes_per_token_fp32
    assert derived.num_kv_blocks == (1 << 30) // block_bytes


def test_context_is_the_models_unless_a_shorter_one_is_asked_for() -> None:
    assert scheduler_config(config(), PRESETS["tiny"]).max_model_len == 2048
    assert scheduler_config(config(max_model_len=100), PRESETS["tiny"]).max_model_len == 100


def test_context_longer_than_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="`max_model_len` must be at most 2048"):
        scheduler_config(config(max_model_len=4096), PRESETS["tiny"])


def test_cache_smaller_than_a_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="`kv_cache_bytes` must be at least"):
        scheduler_config(config(kv_cache_bytes=100), PRESETS["tiny"])


@pytest.mark.parametrize(
    ("settings", "message"), [({"dtype": "bfloat16"}, "`dtype`"), ({"device": "cuda"}, "`device`")]
)
def test_reference_executor_refuses_what_it_cannot_do(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM("random:tiny", num_kv_blocks=8, executor="reference", **settings)


def test_engine_says_the_name_of_a_model_and_never_the_path_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "somebody's secret" / "tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf_bytes.tiny_llama().encode())
    llm = LLM(str(path), num_kv_blocks=8, threads=1)
    llm.generate([[1, 2, 3]], GREEDY)
    assert isinstance(llm.events[0], EngineStarted)
    assert llm.events[0].model == "tiny"
