"""Shapes of bodies: what is taken, what is refused, and by which name."""

from typing import Any

import pytest

from engine.errors import InvalidRequestError
from service.protocol.chat import ChatRequest
from service.protocol.completions import CompletionRequest
from service.protocol.parameters import UNSUPPORTED, ignored_header
from service.protocol.parse import parse_request

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def chat(strict: bool = False, **fields: Any) -> ChatRequest:
    return parse_request(ChatRequest, {**HELLO, **fields}, strict=strict).request


def completion(**fields: Any) -> CompletionRequest:
    return parse_request(CompletionRequest, {"prompt": "x", **fields}, strict=False).request


def refusal(model: Any = ChatRequest, *, strict: bool = False, **fields: Any) -> InvalidRequestError:
    base = HELLO if model is ChatRequest else {"prompt": "x"}
    with pytest.raises(InvalidRequestError) as caught:
        parse_request(model, {**base, **fields}, strict=strict)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param", "rule"),
    [
        ({"temperature": "hot"}, "temperature", 'must be a number, got "hot"'),
        ({"temperature": True}, "temperature", "must be a number"),
        ({"n": 1.5}, "n", "must be an integer"),
        ({"n": "1"}, "n", "must be an integer"),
        ({"n": True}, "n", "must be an integer"),
        ({"n": 0}, "n", "must be at least 1, got 0"),
        ({"n": -3}, "n", "must be at least 1"),
        ({"max_tokens": 0}, "max_tokens", "must be at least 1"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "must be at least 1"),
        ({"min_tokens": -1}, "min_tokens", "must be at least 0"),
        ({"stream": "yes"}, "stream", "must be true or false"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "must be true or false"),
        ({"stop": 5}, "stop", "must be a string or an array, got 5"),
        ({"stop": ["a", 5]}, "stop[1]", "must be a string"),
        ({"logit_bias": [1]}, "logit_bias", "must be an object"),
        ({"logit_bias": {"5": "x"}}, "logit_bias.5", "must be a number"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids[0]", "must be an integer"),
        ({"top_logprobs": -1}, "top_logprobs", "must be at least 0"),
        ({"priority": 2**40}, "priority", "must be at most"),
        ({"cache_salt": "x" * 1025}, "cache_salt", "must have at most 1024 characters"),
        ({"messages": []}, "messages", "must have at least 1 entry"),
        ({"messages": "hi"}, "messages", "must be an array"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "is required"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "must be 'system'"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "must be a string or an array, got 5"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            "must be 'text'",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "is required"),
        ({"messages": None}, "messages", "is required"),
    ],
)
def test_wrong_chat_field_is_refused_by_name(fields: dict[str, Any], param: str, rule: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert error.message.startswith(f"`{param}` ")
    assert rule in error.message


@pytest.mark.parametrize(
    "prompt", [5, {"a": 1}, [1.5], [[1.5]], [True], [[True]], ["a", [1]], [1, "a"], ["a", None], [[1], 1], [[[1]]]]
)
def test_prompt_of_no_kind_is_refused(prompt: Any) -> None:
    error = refusal(CompletionRequest, prompt=prompt)
    assert error.param is not None
    assert error.param.startswith("prompt")


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ([], []),
        ([[]], [[]]),
        ("", [""]),
    ],
)
def test_prompt_of_each_kind_becomes_a_list(prompt: Any, prompts: list[Any]) -> None:
    assert completion(prompt=prompt).prompts == prompts


def test_null_is_absent() -> None:
    request = chat(temperature=None, n=None, stream=None, stop=None, tools=None, stream_options=None, nobody=None)
    assert request == chat()


def test_content_parts_are_joined_in_order() -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    request = chat(messages=[{"role": "user", "content": parts}])
    assert request.messages[0].text == "AB"


def test_assistant_turn_without_content_and_its_tool_message_are_taken() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request = chat(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ]
    )
    assert request.messages[1].text == ""
    assert request.messages[2].text == "42"


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_unsupported_field_that_changes_the_output_is_refused_by_name(name: str) -> None:
    error = refusal(**{name: {"anything": ["else"]}})
    assert (error.param, error.code) == (name, "unsupported_parameter")
    assert f"`{name}`" in error.message


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_unsupported_field_with_a_value_that_changes_nothing_is_taken(name: str) -> None:
    for value in UNSUPPORTED[name]:
        assert chat(**{name: value}) == chat()


@pytest.mark.parametrize("name", ["user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"])
def test_harmless_field_is_taken_even_by_a_strict_server(name: str) -> None:
    assert parse_request(ChatRequest, {**HELLO, name: "x"}, strict=True).ignored == []


def test_unknown_fields_are_named_and_refused_by_a_strict_server() -> None:
    parsed = parse_request(ChatRequest, {**HELLO, "zebra": 1, "apple": 2}, strict=False)
    assert parsed.ignored == ["apple", "zebra"]
    refused = refusal(strict=True, zebra=1)
    assert refused.param == "zebra"
    assert "--" not in refused.message  # some routes refuse them whatever the server's flags are


def test_ignored_header_is_bounded_and_clean() -> None:
    names = [f"name{index}" for index in range(30)]
    assert ignored_header(["a\r\nb: c", "ü"]) == "a??b??c, ?"
    assert ignored_header(names).endswith("name19, (+10)")
    assert len(ignored_header(["x" * 1000])) == 64
