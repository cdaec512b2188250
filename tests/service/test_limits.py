"""Bounds of one request: each at its limit and one past it."""

from typing import Any

import pytest

from engine.errors import InvalidRequestError
from service.limits import RequestLimits
from service.protocol.chat import ChatRequest
from service.protocol.completions import CompletionRequest
from service.protocol.parse import parse_request

LIMITS = RequestLimits(n=4, prompts=3, stop_strings=2, stop_bytes=4, logprobs=5, bias_entries=2, token_ids=2)
HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def check_chat(**fields: Any) -> None:
    LIMITS.check(parse_request(ChatRequest, {**HELLO, **fields}, strict=False).request)


def check_completion(**fields: Any) -> None:
    LIMITS.check(parse_request(CompletionRequest, {"prompt": "x", **fields}, strict=False).request)


@pytest.mark.parametrize(
    ("fits", "passes", "param"),
    [
        ({"n": 4}, {"n": 5}, "n"),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b", "c"]}, "stop"),
        ({"stop": "éé"}, {"stop": "ééé"}, "stop[0]"),
        ({"stop": ["a"]}, {"stop": ["a", ""]}, "stop[1]"),
        ({"logit_bias": {"1": 1, "2": 1}}, {"logit_bias": {"1": 1, "2": 1, "3": 1}}, "logit_bias"),
        ({"stop_token_ids": [1, 2]}, {"stop_token_ids": [1, 2, 3]}, "stop_token_ids"),
        ({"bad_words": ["a", "b"]}, {"bad_words": ["a", "b", "c"]}, "bad_words"),
        ({"bad_words": ["abcd"]}, {"bad_words": [""]}, "bad_words[0]"),
        ({"allowed_token_ids": [1]}, {"allowed_token_ids": []}, "allowed_token_ids"),
        ({"prompt_logprobs": 5}, {"prompt_logprobs": 6}, "prompt_logprobs"),
        ({"prompt_logprobs": 0}, {"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"logprobs": True, "top_logprobs": 5}, {"logprobs": True, "top_logprobs": 6}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 1}, {"top_logprobs": 1}, "top_logprobs"),
    ],
)
def test_chat_limit_is_refused_one_past_it(fits: dict[str, Any], passes: dict[str, Any], param: str) -> None:
    check_chat(**fits)
    with pytest.raises(InvalidRequestError) as caught:
        check_chat(**passes)
    assert caught.value.param == param
    assert f"`{param}`" in caught.value.message


@pytest.mark.parametrize(
    ("fits", "passes", "param"),
    [
        ({"logprobs": 5}, {"logprobs": 6}, "logprobs"),
        ({"logprobs": 0}, {"logprobs": -1}, "logprobs"),
        ({"prompt": ["a", "b", "c"]}, {"prompt": ["a", "b", "c", "d"]}, "prompt"),
        ({"best_of": 2, "n": 2}, {"best_of": 3, "n": 2}, "best_of"),
    ],
)
def test_completion_limit_is_refused_one_past_it(fits: dict[str, Any], passes: dict[str, Any], param: str) -> None:
    check_completion(**fits)
    with pytest.raises(InvalidRequestError) as caught:
        check_completion(**passes)
    assert caught.value.param == param
