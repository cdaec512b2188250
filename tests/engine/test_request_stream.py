"""Joining several steps' outputs for a consumer that was slow."""

from engine.messages import ChoiceOutput, LogprobEntry, TokenLogprobs
from engine.request_stream import RequestStream, join_outputs


def entry(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(chosen=LogprobEntry(token_id=token_id, logprob=-1.0), top=[])


def test_join_outputs_keeps_order_within_a_choice_and_the_last_word() -> None:
    joined = join_outputs(
        [
            ChoiceOutput(request_id="a", index=1, prompt_logprobs=[entry(5)], num_cached_tokens=16),
            ChoiceOutput(request_id="a", index=0, token_ids=[1], logprobs=[entry(1)]),
            ChoiceOutput(request_id="a", index=1, token_ids=[2, 3], prompt_logprobs=[entry(6)]),
            ChoiceOutput(request_id="a", index=1, token_ids=[0], finish_reason="stop", stop_token_id=0),
        ]
    )
    assert joined == [
        ChoiceOutput(
            request_id="a",
            index=1,
            token_ids=[2, 3, 0],
            prompt_logprobs=[entry(5), entry(6)],
            finish_reason="stop",
            stop_token_id=0,
            num_cached_tokens=16,
        ),
        ChoiceOutput(request_id="a", index=0, token_ids=[1], logprobs=[entry(1)]),
    ]


def test_join_outputs_does_not_change_what_it_joins() -> None:
    first = ChoiceOutput(request_id="a", token_ids=[1])
    join_outputs([first, ChoiceOutput(request_id="a", token_ids=[2])])
    assert first.token_ids == [1]


def test_stream_second_terminal_output_of_a_choice_is_dropped() -> None:
    stream = RequestStream(2)
    assert stream.put(ChoiceOutput(request_id="a", index=0, finish_reason="stop"))
    assert not stream.put(ChoiceOutput(request_id="a", index=0, finish_reason="abort"))
    assert not stream.is_complete
    assert stream.put(ChoiceOutput(request_id="a", index=1, finish_reason="length"))
    assert stream.is_complete
    assert not stream.put(ChoiceOutput(request_id="a", index=7, token_ids=[1]))
