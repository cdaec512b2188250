"""The default model's tokenizer, read once: file and build take a few tenths of a second."""

import pytest

from engine.model.catalog import DEFAULT_MODEL
from engine.model.load import load_model
from engine.model.tokenizer_source import GgufTokenizerSource
from engine.text.tokenizer import Tokenizer, build_tokenizer


@pytest.fixture(scope="session")
def smollm2_source() -> GgufTokenizerSource:
    source = load_model(DEFAULT_MODEL).tokenizer
    assert isinstance(source, GgufTokenizerSource)
    return source


@pytest.fixture(scope="session")
def smollm2(smollm2_source: GgufTokenizerSource) -> Tokenizer:
    return build_tokenizer(smollm2_source)
