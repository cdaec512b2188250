"""Random models: the same for the same seed, complete, and lively enough to test generation with."""

import numpy as np
import pytest

from engine.errors import ModelLoadError
from engine.model.load import load_model
from engine.model.random_weights import PRESETS
from engine.model.tokenizer_source import ByteTokenizerSource
from tests.support.transformers_model import greedy, transformers_model


@pytest.mark.parametrize("preset", list(PRESETS))
def test_random_model_has_exactly_the_weights_of_its_spec(preset: str) -> None:
    model = load_model(f"random:{preset}")
    assert {name: weight.shape for name, weight in model.weights.items()} == model.spec.weight_shapes()
    assert all(weight.to_float32().shape == weight.shape for weight in model.weights.values())
    assert model.tokenizer == ByteTokenizerSource(vocab_size=model.spec.vocab_size)
    assert model.path is None


def test_random_model_of_one_seed_is_the_same_each_time_and_of_another_differs() -> None:
    first, again, other = (load_model(f"random:tiny?seed={seed}").weights for seed in (3, 3, 4))
    for name in first:
        np.testing.assert_array_equal(first[name].to_float32(), again[name].to_float32())
        assert not np.array_equal(first[name].to_float32(), other[name].to_float32())


def test_random_model_without_a_seed_has_seed_zero() -> None:
    name = "layers.1.gate.weight"
    plain, zero = load_model("random:tiny").weights[name], load_model("random:tiny?seed=0").weights[name]
    np.testing.assert_array_equal(plain.data, zero.data)


@pytest.mark.parametrize(
    "name", ["random:", "random:huge", "random:tiny?seed=-1", "random:tiny?seed=x", "random:tiny?"]
)
def test_random_model_of_a_wrong_name_is_refused_naming_the_field(name: str) -> None:
    with pytest.raises(ModelLoadError, match=r"^`model` "):
        load_model(name)


@pytest.mark.parametrize("preset", ["tiny", "tiny-qwen2", "tiny-qwen3"])
def test_random_model_answers_greedily_with_varied_tokens_and_clear_margins(preset: str) -> None:
    tokens, margins = greedy(transformers_model(load_model(f"random:{preset}")), list(b"Hello"), num_tokens=32)
    assert len(set(tokens)) >= 8
    assert sorted(margins)[len(margins) // 2] > 0.2
    assert min(margins) > 1e-3
