"""Rotary frequencies against transformers' formulas, and against literal values."""

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import ModelLoadError
from engine.model.random_weights import PRESETS
from engine.model.rope import inverse_frequencies
from engine.model.spec import DecoderSpec, RopeScaling


def spec(scaling: RopeScaling | None = None, *, theta: float = 10000.0, head_dim: int = 16) -> DecoderSpec:
    return DecoderSpec(
        architecture="llama",
        vocab_size=260,
        hidden_size=64,
        intermediate_size=64,
        num_layers=1,
        num_heads=4,
        num_kv_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_theta=theta,
        rope_scaling=scaling,
    )


def test_inverse_frequencies_of_four_dims_are_one_and_a_hundredth() -> None:
    np.testing.assert_allclose(inverse_frequencies(spec(head_dim=4)), [1.0, 0.01])


def test_inverse_frequencies_linear_are_divided_by_the_factor() -> None:
    scaled = inverse_frequencies(spec(RopeScaling(kind="linear", factor=4.0), head_dim=4))
    np.testing.assert_allclose(scaled, [0.25, 0.0025])


def test_inverse_frequencies_per_frequency_are_divided_one_by_one() -> None:
    scaled = inverse_frequencies(spec(RopeScaling(kind="per_frequency", factors=(2.0, 5.0)), head_dim=4))
    np.testing.assert_allclose(scaled, [0.5, 0.002])


def test_inverse_frequencies_llama3_agree_with_transformers() -> None:
    numbers = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = LlamaConfig(
        hidden_size=512,
        num_attention_heads=4,
        head_dim=128,
        max_position_embeddings=131072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "original_max_position_embeddings": 8192,
            **numbers,
        },
    )
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, device="cpu")
    scaling = RopeScaling(kind="llama3", original_max_positions=8192, **numbers)
    ours = inverse_frequencies(spec(scaling, theta=500000.0, head_dim=128))
    np.testing.assert_allclose(ours, expected.numpy(), rtol=2e-6)
    plain = inverse_frequencies(spec(theta=500000.0, head_dim=128))
    assert ours[0] == plain[0]
    np.testing.assert_allclose(ours[-1], plain[-1] / 8)


def test_inverse_frequencies_from_a_gguf_files_factors_are_those_of_llama3() -> None:
    plain = inverse_frequencies(spec(theta=500000.0, head_dim=128))
    scaling = RopeScaling(kind="llama3", factor=32.0, original_max_positions=8192)
    llama3 = inverse_frequencies(spec(scaling, theta=500000.0, head_dim=128))
    # What llama.cpp's converter stores in rope_freqs.weight, rounded to float32 as there.
    factors = tuple(float(factor) for factor in (plain / llama3).astype(np.float32))
    assert (factors[0], round(factors[-1], 4)) == (1.0, 32.0)
    stored = inverse_frequencies(spec(RopeScaling(kind="per_frequency", factors=factors), theta=500000.0, head_dim=128))
    np.testing.assert_allclose(stored, llama3, rtol=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "linear", "factor": 0.0}, "factors must be positive"),
        ({"kind": "linear", "factor": float("inf")}, "factors must be positive"),
        ({"kind": "llama3", "factor": 8.0, "low_freq_factor": 4.0}, "below `high_freq_factor`"),
        ({"kind": "llama3", "factor": 8.0, "original_max_positions": 0}, "`original_max_positions`"),
    ],
)
def test_rope_scaling_with_impossible_numbers_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        RopeScaling(**change)  # type: ignore[arg-type]


def test_decoder_spec_with_a_wrong_number_of_rope_factors_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="must have 8 factors, found 1"):
        spec(RopeScaling(kind="per_frequency", factors=(1.0,)))


def test_presets_have_even_heads_and_room_for_the_byte_tokenizer() -> None:
    assert all(preset.vocab_size >= 260 for preset in PRESETS.values())
