"""tokenizer.json: the same ids as the library gives, but special tokens are ours to write."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE, Unigram

from engine.errors import ModelLoadError
from engine.model.tokenizer_source import HuggingFaceTokenizerSource
from engine.text.gguf_vocabulary import merges_from_scores
from engine.text.tokenizer import Tokenizer, build_tokenizer
from tests.support.text_sources import byte_level_source, sentencepiece_source

BEGIN, END, THINK = "<s>", "</s>", "<think>"


def byte_level_library() -> Library:
    source = byte_level_source()
    vocab = {token: i for i, token in enumerate(source.tokens[:262])}
    library = Library(BPE(vocab=vocab, merges=[tuple(m.split()) for m in source.merges]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([BEGIN, END])
    library.add_tokens([AddedToken(THINK, normalized=False, special=False)])
    return library


def sentencepiece_library(scheme: str) -> Library:
    """Return a library tokenizer with a space prefix: by normalizer (`prepend`) or by Metaspace (`first`, `always`)."""
    source = sentencepiece_source()
    vocab = {token: i for i, token in enumerate(source.tokens)}
    # As in converted files, the merges that spell a special token are there too.
    merges = merges_from_scores(vocab, source.scores or ())
    assert ("</s", ">") in merges
    library = Library(BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    strip = [decoders.Strip(content=" ", left=1)]
    if scheme == "prepend":
        library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    library.add_special_tokens(["<unk>", BEGIN, END])
    library.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, 1)]
    )
    return library


LIBRARIES = {
    "byte level": byte_level_library(),
    "prepend": sentencepiece_library("prepend"),
    "first": sentencepiece_library("first"),
    "always": sentencepiece_library("always"),
}


def source_of(library: Library, directory: Path, **settings: Any) -> HuggingFaceTokenizerSource:
    path = directory / "tokenizer.json"
    path.write_text(library.to_str(), encoding="utf-8")
    fields: dict[str, Any] = {
        "bos_token": BEGIN,
        "eos_token": END,
        "bos_id": library.token_to_id(BEGIN),
        "eos_ids": (library.token_to_id(END),),
    }
    return HuggingFaceTokenizerSource(tokenizer_json=path, **fields | settings)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {
        kind: build_tokenizer(source_of(library, tmp_path_factory.mktemp("tokenizer")))
        for kind, library in LIBRARIES.items()
    }


@pytest.mark.parametrize("kind", LIBRARIES)
@given(text=st.text("thelo w é\n/", max_size=25))
def test_encode_text_without_special_literals_equals_the_library(
    kind: str, text: str, tokenizers: dict[str, Tokenizer]
) -> None:
    library, tokenizer = LIBRARIES[kind], tokenizers[kind]
    assert tokenizer.encode(text) == library.encode(text).ids
    assert tokenizer.encode(text, add_special=False) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", LIBRARIES)
@given(text=st.text("thelo </s>é🙂", max_size=25))
def test_decode_returns_the_encoded_text(kind: str, text: str, tokenizers: dict[str, Tokenizer]) -> None:
    # Metaspace adds no space to a text that begins with one, so there the first space is lost, as in the library.
    text = text if kind in ("byte level", "prepend") else text.lstrip(" ")
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids) == text
    assert not any(tokenizer.is_special(i) for i in ids)


@pytest.mark.parametrize("kind", LIBRARIES)
@given(text=st.text("thelo é", min_size=1, max_size=25))
def test_decode_equals_the_library(kind: str, text: str, tokenizers: dict[str, Tokenizer]) -> None:
    ids = LIBRARIES[kind].encode(text).ids
    assert tokenizers[kind].decode(ids) == LIBRARIES[kind].decode(ids)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_encode_special_literal_in_text_stays_text(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode("the</s>", add_special=False)
    assert tokenizer.decode(ids) == "the</s>"
    assert not any(tokenizer.is_special(i) for i in ids)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_encode_segments_equal_the_library_reading_the_literals(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    library = LIBRARIES[kind]
    begin, end = library.token_to_id(BEGIN), library.token_to_id(END)
    ids = tokenizers[kind].encode_segments([begin, "the hello", end, "hello"])
    assert ids == library.encode(f"{BEGIN}the hello{END}hello", add_special_tokens=False).ids


def test_encode_added_token_that_is_not_special_is_matched_whole(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte level"]
    assert tokenizer.encode("a<think>b") == LIBRARIES["byte level"].encode("a<think>b").ids
    assert not tokenizer.is_special(tokenizer.user_defined_literals[THINK])


def test_bos_is_added_as_the_post_processor_or_else_the_setting_says(tmp_path: Path) -> None:
    assert build_tokenizer(source_of(LIBRARIES["prepend"], tmp_path)).adds_bos
    assert not build_tokenizer(source_of(LIBRARIES["prepend"], tmp_path, add_bos=False)).adds_bos
    assert not build_tokenizer(source_of(LIBRARIES["byte level"], tmp_path)).adds_bos
    assert build_tokenizer(source_of(LIBRARIES["byte level"], tmp_path, add_bos=True)).encode("h") == [262, ord("h")]


def test_encode_segments_special_token_that_strips_swallows_the_space_beside_it(tmp_path: Path) -> None:
    library = byte_level_library()
    library.add_special_tokens([AddedToken("<|end|>", rstrip=True), AddedToken("<|mask|>", lstrip=True)])
    tokenizer = build_tokenizer(source_of(library, tmp_path))
    end, mask = library.token_to_id("<|end|>"), library.token_to_id("<|mask|>")
    ids = tokenizer.encode_segments([end, "\n hello \n", mask])
    assert ids == library.encode("<|end|>\n hello \n<|mask|>", add_special_tokens=False).ids


def test_eos_includes_the_end_of_turn(tmp_path: Path) -> None:
    library = byte_level_library()
    library.add_special_tokens(["<|im_end|>"])
    tokenizer = build_tokenizer(source_of(library, tmp_path))
    assert tokenizer.eos_token_ids == {library.token_to_id(END), library.token_to_id("<|im_end|>")}


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "nonsense", '{"model": {"type": "BPE", "vocab": []}}', "[" * 100_000]
)
def test_build_file_that_is_no_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ModelLoadError):
        build_tokenizer(HuggingFaceTokenizerSource(tokenizer_json=path))


def test_build_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json"):
        build_tokenizer(HuggingFaceTokenizerSource(tokenizer_json=tmp_path / "tokenizer.json"))


def test_build_other_model_type_is_refused(tmp_path: Path) -> None:
    library = Library(Unigram([("a", 0.0)], unk_id=0))
    (tmp_path / "tokenizer.json").write_text(library.to_str())
    with pytest.raises(ModelLoadError, match="`vocab` object"):
        build_tokenizer(HuggingFaceTokenizerSource(tokenizer_json=tmp_path / "tokenizer.json"))


def test_build_document_that_the_library_refuses_is_refused(tmp_path: Path) -> None:
    document = json.loads(byte_level_library().to_str())
    document["pre_tokenizer"] = {"type": "Nonsense"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ModelLoadError, match=r"`tokenizer\.json` can't be used"):
        build_tokenizer(HuggingFaceTokenizerSource(tokenizer_json=tmp_path / "tokenizer.json"))
