"""From fields to the engine's settings: off-values, ranges, lengths."""

from typing import Any

import pytest

from engine.config import SchedulerConfig
from engine.errors import ContextLengthError, InvalidRequestError
from engine.sampling_params import SamplingParams
from service.protocol.chat import ChatRequest
from service.protocol.parse import parse_request
from service.sampling import ReportedLogprobs, TokenLimit, sampling_params
from tests.support.scripted_service import scripted_info

VOCAB = 1000


def params(max_tokens: int = 16, **fields: Any) -> SamplingParams:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return sampling_params(
        parse_request(ChatRequest, body, strict=False).request,
        max_tokens=max_tokens,
        logprobs=ReportedLogprobs(),
        bad_words=[],
        default_seed=77,
        vocab_size=VOCAB,
    )


@pytest.mark.parametrize(("top_k", "result"), [(None, 0), (0, 0), (-1, 0), (5, 5), (9_999_999, VOCAB)])
def test_top_k_off_values_and_clamp(top_k: int | None, result: int) -> None:
    assert params(top_k=top_k).top_k == result


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1e9),
        ("temperature", -0.1),
        ("top_p", 0),
        ("top_p", -1),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", -0.5),
        ("min_p", 1.5),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("seed", -1),
        ("seed", 2**63),
        ("min_tokens", 17),
        ("logit_bias", {"999999999": -100}),
        ("logit_bias", {"99999999999999999999": -100}),
        ("logit_bias", {"-1": 5}),
        ("logit_bias", {"abc": 1}),
        ("logit_bias", {"": 1}),
        ("logit_bias", {"٣": 1}),
        ("logit_bias", {"5": 1e9}),
        ("stop_token_ids", [999_999_999]),
        ("stop_token_ids", [-1]),
        ("allowed_token_ids", [VOCAB]),
    ],
)
def test_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        params(**{field: value})
    assert caught.value.param == field
    assert f"`{field}`" in caught.value.message


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", 1e-7), ("temperature", 0), ("top_p", 1), ("logit_bias", {"999": -100})]
)
def test_value_at_the_edge_of_its_range_is_taken(field: str, value: Any) -> None:
    params(**{field: value})


def test_request_without_a_seed_gets_the_drawn_one() -> None:
    assert params().seed == 77
    assert params(seed=0).seed == 0


@pytest.mark.parametrize(
    ("model_len", "num_blocks", "what", "limit"), [(128, 100, "context", 128), (4096, 63, "KV cache", 1008)]
)
def test_token_limit_is_the_smaller_of_context_and_pool(model_len: int, num_blocks: int, what: str, limit: int) -> None:
    info = scripted_info(SchedulerConfig(max_model_len=model_len, num_kv_blocks=num_blocks), VOCAB, (0,))
    bound = TokenLimit.of(info)
    assert bound.num_tokens == limit
    assert what in bound.what


def test_token_limit_refuses_with_both_numbers_what_never_fits() -> None:
    limit = TokenLimit(100, "this model's context", truncates=False)
    assert limit.output_tokens(num_prompt_tokens=90, asked=10, param="prompt") == 10
    assert limit.output_tokens(num_prompt_tokens=90, asked=None, param="prompt") == 10
    for num_prompt, asked, needed in ((90, 11, 101), (100, None, 101), (150, None, 151), (200, 5, 205)):
        with pytest.raises(ContextLengthError) as caught:
            limit.output_tokens(num_prompt_tokens=num_prompt, asked=asked, param="prompt")
        assert (caught.value.num_requested_tokens, caught.value.max_tokens) == (needed, 100)
        assert caught.value.code == "context_length_exceeded"


def test_token_limit_of_a_truncating_server_shortens_the_output_only() -> None:
    limit = TokenLimit(100, "the KV cache", truncates=True)
    assert limit.output_tokens(num_prompt_tokens=90, asked=50, param="prompt") == 10
    with pytest.raises(ContextLengthError):
        limit.output_tokens(num_prompt_tokens=100, asked=1, param="prompt")
