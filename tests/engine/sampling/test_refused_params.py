"""What would poison or crash sampling is refused before it gets there, by name."""

import math

import pytest

from engine.errors import InvalidRequestError
from engine.sampling_params import SamplingParams

VOCAB = 100


@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_sampling_params_not_finite_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value}).validate(vocab_size=VOCAB)
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1e9),
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", -1.0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("logit_bias", ((999999999, -100.0),)),
        ("logit_bias", ((-1, 5.0),)),
        ("logit_bias", ((5, 1e9),)),
        ("logit_bias", ((5, math.nan),)),
        ("logit_bias", ((VOCAB, 1.0),)),
        ("stop_token_ids", (999999999,)),
        ("allowed_token_ids", (VOCAB,)),
        ("bad_words", ((1, VOCAB),)),
    ],
)
def test_sampling_params_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value}).validate(vocab_size=VOCAB)  # type: ignore[arg-type]
    assert caught.value.param == field


@pytest.mark.parametrize("top_k", [0, 9_999_999])
def test_sampling_params_top_k_off_or_above_vocabulary_is_allowed(top_k: int) -> None:
    SamplingParams(top_k=top_k).validate(vocab_size=VOCAB)
