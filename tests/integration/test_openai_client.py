"""The official client, unmodified, against the scripted service."""

from typing import Any

import openai
import pytest

from service.settings import ServiceSettings
from tests.support.scripted_service import Served, emits, serve

MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def served() -> Any:
    with serve(script=emits(b"ok \xf0\x9f\xab\xa0"), settings=ServiceSettings(api_keys=frozenset({"key"}))) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Served) -> Any:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="key", max_retries=0, timeout=20) as opened:
        yield opened


def test_client_streams_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "ok 🫠"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 8
    assert usage.prompt_tokens_details is not None


def test_client_reads_a_whole_chat_with_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="scripted", messages=MESSAGES, logprobs=True, top_logprobs=2, n=2, seed=7, max_completion_tokens=20
    )
    assert [choice.message.content for choice in answer.choices] == ["ok 🫠", "ok 🫠"]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert bytes(byte for entry in logprobs.content for byte in entry.bytes or ()) == "ok 🫠".encode()


def test_client_streams_completions(client: openai.OpenAI) -> None:
    stream = client.completions.create(model="scripted", prompt="x", stream=True, max_tokens=20, logprobs=1)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "ok 🫠"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_client_reads_a_whole_completion_of_several_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt=["a", "b"], max_tokens=20, echo=True)
    assert [choice.text for choice in answer.choices] == ["aok 🫠", "bok 🫠"]


def test_client_lists_and_retrieves_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").id == "scripted"


def test_client_raises_its_own_error_for_each_refusal(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="scripted", messages=MESSAGES, temperature=5e9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_client_sees_our_request_id(client: openai.OpenAI) -> None:
    answer = client.chat.completions.with_raw_response.create(model="scripted", messages=MESSAGES)
    assert str(answer.headers["x-request-id"]).startswith("req-")


def test_client_that_stops_reading_ends_the_request(client: openai.OpenAI, served: Served) -> None:
    with client.chat.completions.create(
        model="scripted", messages=MESSAGES, stream=True, max_tokens=8000, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    served.until(lambda: served.services.admission.taken == 0)
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    assert served.stats()["counters"]["requests_aborted"] == 1
