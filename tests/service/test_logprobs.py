"""Log probabilities of both routes: alignment with text, tokens and usage; partial characters; echo."""

from typing import Any

import pytest

from engine.messages import LogprobEntry, TokenLogprobs
from engine.model.tokenizer_source import ByteTokenizerSource
from engine.text.tokenizer import build_tokenizer
from service.protocol.logprobs import LOWEST_LOGPROB, CompletionLogprobs, TokenSpelling
from tests.support.http_calls import CHAT, COMPLETIONS, chat, completion, post, stream, texts
from tests.support.scripted_service import EOS, Served, emits, serve

TOKENIZER = build_tokenizer(ByteTokenizerSource(vocab_size=264))
BIRD = "🫠".encode()


@pytest.fixture(scope="module")
def served() -> Any:
    with serve(script=emits(b"a" + BIRD + b"b")) as running:
        yield running


def entries_of(chunks: list[Any]) -> list[Any]:
    """Join `logprobs.content` of the chunks of choice 0."""
    found = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    return [entry for logprobs in found for entry in logprobs["content"]]


def test_token_of_part_of_a_character_is_spelled_by_its_own_bytes() -> None:
    spelling = TokenSpelling(TOKENIZER, skip_special=True)
    entry = TokenLogprobs(LogprobEntry(240, -0.5), [LogprobEntry(159, -1.0), LogprobEntry(ord("a"), -2.0)])
    assert spelling.chat_entries([entry]) == [
        {
            "token": "bytes:\\xf0",
            "logprob": -0.5,
            "bytes": [240],
            "top_logprobs": [
                {"token": "bytes:\\x9f", "logprob": -1.0, "bytes": [159]},
                {"token": "a", "logprob": -2.0, "bytes": [97]},
            ],
        }
    ]


@pytest.mark.parametrize(("skip", "data"), [(True, []), (False, list(b"<|eos|>"))])
def test_special_token_has_bytes_only_where_it_has_text(skip: bool, data: list[int]) -> None:
    spelled = TokenSpelling(TOKENIZER, skip_special=skip).chat_entry(LogprobEntry(EOS, -1.0))
    assert spelled == {"token": "<|eos|>", "logprob": -1.0, "bytes": data}


def test_impossible_token_has_a_finite_logprob() -> None:
    spelled = TokenSpelling(TOKENIZER, skip_special=True).chat_entry(LogprobEntry(97, float("-inf")))
    assert spelled["logprob"] == LOWEST_LOGPROB


def test_completion_arrays_stay_parallel_and_list_the_chosen_token_too() -> None:
    arrays = CompletionLogprobs(TokenSpelling(TOKENIZER, skip_special=True))
    arrays.add_first(97, text_offset=0)
    arrays.add(TokenLogprobs(LogprobEntry(98, -3.0), [LogprobEntry(99, -0.1)]), text_offset=1)
    assert arrays.take() == {
        "tokens": ["a", "b"],
        "token_logprobs": [None, -3.0],
        "top_logprobs": [None, {"c": -0.1, "b": -3.0}],
        "text_offset": [0, 1],
    }
    assert arrays.take()["tokens"] == []


def test_chat_logprobs_join_to_the_text_and_count_like_usage(served: Served) -> None:
    whole = post(served.url, CHAT, chat(logprobs=True)).json()
    choice = whole["choices"][0]
    content = choice["logprobs"]["content"]
    assert (
        bytes(byte for entry in content for byte in entry["bytes"]).decode() == choice["message"]["content"] == "a🫠b"
    )
    assert [entry["bytes"] for entry in content[1:5]] == [[byte] for byte in BIRD]
    assert len(content) == whole["usage"]["completion_tokens"]


def test_chat_stream_carries_the_same_logprobs(served: Served) -> None:
    whole = post(served.url, CHAT, chat(logprobs=True)).json()
    *chunks, _ = stream(served.url, CHAT, chat(logprobs=True))
    assert entries_of(chunks) == whole["choices"][0]["logprobs"]["content"]
    assert texts(chunks) == {0: "a🫠b"}


def test_logprobs_and_ids_are_cut_where_a_stop_string_ends_the_text(served: Served) -> None:
    body = chat(logprobs=True, return_token_ids=True, stop=["🫠"])
    choice = post(served.url, CHAT, body).json()["choices"][0]
    *chunks, _ = stream(served.url, CHAT, body)
    assert choice["message"]["content"] == "a"
    assert choice["token_ids"] == list(b"a" + BIRD)
    assert len(choice["logprobs"]["content"]) == 5
    assert entries_of(chunks) == choice["logprobs"]["content"]
    assert texts(chunks) == {0: "a"}


def test_completion_logprobs_have_the_offset_of_each_token(served: Served) -> None:
    body = completion("x", logprobs=1)
    whole = post(served.url, COMPLETIONS, body).json()
    logprobs = whole["choices"][0]["logprobs"]
    assert logprobs["text_offset"] == [0, 1, 1, 1, 1, 2, 3]
    assert logprobs["tokens"][0] == "a"
    assert logprobs["tokens"][-1] == "<|eos|>"
    *chunks, _ = stream(served.url, COMPLETIONS, body)
    joined: dict[str, list[Any]] = {name: [] for name in logprobs}
    for chunk in chunks:
        for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
            joined[name] += values
    assert joined == logprobs


@pytest.mark.parametrize("num_prompt_tokens", [2, 33, 64])
def test_echo_with_logprobs_has_one_value_per_position_also_when_cached(served: Served, num_prompt_tokens: int) -> None:
    prompt = [ord("a") + index % 26 for index in range(num_prompt_tokens)]
    body = completion([prompt], echo=True, logprobs=1, max_tokens=1)
    first, second = (post(served.url, COMPLETIONS, body).json()["choices"][0] for _ in range(2))
    assert first == second
    logprobs = first["logprobs"]
    assert first["text"] == bytes(prompt).decode() + "a"
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value is not None for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"] == list(range(num_prompt_tokens + 1))
    assert "".join(logprobs["tokens"]) == first["text"]


def test_echo_with_logprobs_streams_the_prompt_first(served: Served) -> None:
    body = completion("xy", echo=True, logprobs=1, max_tokens=2)
    whole = post(served.url, COMPLETIONS, body).json()["choices"][0]
    *chunks, _ = stream(served.url, COMPLETIONS, body)
    assert texts(chunks) == {0: whole["text"]}
    tokens = [token for chunk in chunks for token in (chunk["choices"][0]["logprobs"] or {}).get("tokens", ())]
    assert tokens == whole["logprobs"]["tokens"]
    assert tokens[:3] == ["<|bos|>", "x", "y"]


def test_prompt_logprobs_stand_in_their_own_field(served: Served) -> None:
    text = post(served.url, COMPLETIONS, completion([[97, 98, 99]], prompt_logprobs=0, max_tokens=1)).json()
    positions = text["choices"][0]["prompt_logprobs"]
    assert positions[0] is None
    assert [next(iter(position)) for position in positions[1:]] == ["98", "99"]
    assert next(iter(positions[1].values()))["decoded_token"] == "b"
    talk = post(served.url, CHAT, chat(prompt_logprobs=0, max_tokens=1)).json()
    assert len(talk["prompt_logprobs"]) == talk["usage"]["prompt_tokens"]
    *chunks, _ = stream(served.url, CHAT, chat(prompt_logprobs=0, max_tokens=1))
    assert [chunk["prompt_logprobs"] for chunk in chunks if "prompt_logprobs" in chunk] == [talk["prompt_logprobs"]]
