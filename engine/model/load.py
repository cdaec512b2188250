"""Turn what a user calls a model into a LoadedModel."""

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelLoadError
from engine.model import random_weights
from engine.model.catalog import CATALOG
from engine.model.gguf import load_gguf
from engine.model.hub import fetch_from_hub, is_hub_id
from engine.model.huggingface import load_huggingface
from engine.model.pull import pull
from engine.model.spec import DecoderSpec
from engine.model.tokenizer_source import ByteTokenizerSource, TokenizerSource
from engine.model.weights import Weights


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, ready for an executor and a tokenizer. Weights stay in the file until they are asked for.

    Attributes:
        name: a catalogue name, a file's stem, a directory's name, a hub id or the `random:` name.
        path: the file or directory; None for random weights.
        spec, weights: what executors consume.
        tokenizer: what `engine.text` builds the tokenizer from.
    """

    name: str
    path: Path | None
    spec: DecoderSpec
    weights: Weights
    tokenizer: TokenizerSource


def load_model(name: str) -> LoadedModel:
    """Find and open a model, downloading a catalogue or hub model that isn't in the cache.

    Args:
        name: a `.gguf` file, a Hugging Face directory, a catalogue name, a hub id, or `random:<preset>[?seed=<n>]`.

    Raises:
        ModelLoadError: nothing goes by that name, or it is damaged or of an unknown kind; one line.
    """
    if name.startswith(random_weights.PREFIX):
        spec, seed = random_weights.parse_name(name)
        weights = random_weights.random_weights(spec, seed=seed)
        return LoadedModel(name, None, spec, weights, ByteTokenizerSource(vocab_size=spec.vocab_size))
    if name in CATALOG:
        return _open_file(name, pull(CATALOG[name]))
    path = Path(name)
    try:
        path = path.expanduser()
        is_file, is_directory = path.is_file(), bool(name) and path.is_dir()
    except (OSError, RuntimeError) as error:
        raise ModelLoadError(f"`model` {name[:200]!r} can't be looked up: {error}"[:400]) from None
    if is_file:
        return _open_file(path.stem, path)
    if is_directory:
        return _open_directory(path.resolve().name, path)
    if path.suffix == ".gguf":
        raise ModelLoadError(f"{name}: no such file")
    if is_hub_id(name):
        return _open_directory(name, fetch_from_hub(name))
    raise ModelLoadError(
        f"`model` {name[:200]!r} is no file, no directory, no hub id and no known name ({', '.join(CATALOG)})"
    )


def _open_file(name: str, path: Path) -> LoadedModel:
    spec, weights, tokenizer = load_gguf(path)
    return LoadedModel(name, path, spec, weights, tokenizer)


def _open_directory(name: str, path: Path) -> LoadedModel:
    spec, weights, tokenizer = load_huggingface(path)
    return LoadedModel(name, path, spec, weights, tokenizer)
