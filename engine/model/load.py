"""Turn what a user calls a model into a LoadedModel."""

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelLoadError
from engine.model import random_weights
from engine.model.gguf import load_gguf
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
    """Find and open a model.

    Args:
        name: a `.gguf` file, a Hugging Face directory, a catalogue name, a hub id, or `random:<preset>[?seed=<n>]`.

    Raises:
        ModelLoadError: nothing goes by that name, or it is damaged or of an unknown kind; one line.
    """
    if name.startswith(random_weights.PREFIX):
        spec, seed = random_weights.parse_name(name)
        weights = random_weights.random_weights(spec, seed=seed)
        return LoadedModel(name, None, spec, weights, ByteTokenizerSource(vocab_size=spec.vocab_size))
    path = Path(name).expanduser()
    if path.is_file():
        spec, weights, tokenizer = load_gguf(path)
        return LoadedModel(path.stem, path, spec, weights, tokenizer)
    raise ModelLoadError(f"`model` {name!r} is no file, no directory and no known name")
