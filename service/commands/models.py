"""`pellucid models list / pull / info`: which models there are, fetching one, and what one is."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub.utils.tqdm import disable_progress_bars
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from engine.errors import ModelLoadError
from engine.model.catalog import CATALOG, DEFAULT_MODEL, CatalogModel
from engine.model.description import ModelDescription, describe
from engine.model.hub import fetch_from_hub, is_hub_id
from engine.model.load import load_model
from engine.model.pull import PullProgress, cached_path, pull
from engine.text.tokenizer import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_STAGES = {"verify": "checking", "download": "downloading", "unpack": "unpacking"}


def register(subparsers: "Subparsers") -> None:
    """Add the command and its three actions."""
    parser = subparsers.add_parser("models", help="list, fetch and inspect models", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    actions.add_parser("list", parents=[as_json], help="the named models and which of them are here")
    pull_parser = actions.add_parser("pull", parents=[as_json], help="fetch a model into the cache and check it")
    pull_parser.add_argument(
        "model", nargs="?", default=DEFAULT_MODEL, help=f"a name of `list` or a hub id (default: {DEFAULT_MODEL})"
    )
    info_parser = actions.add_parser(
        "info", parents=[as_json], help="architecture, quantisation, tokenizer, template and memory of a model"
    )
    info_parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        help=f"a .gguf file, a Hugging Face directory, a name, a hub id or random:PRESET (default: {DEFAULT_MODEL})",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do the action; 0 when done, 2 when the model can't be found, fetched or read (one line on stderr)."""
    actions = {"list": _list, "pull": _pull, "info": _info}
    try:
        result: dict[str, Any] = actions[args.action](args)
    except ModelLoadError as error:
        Console(stderr=True).print(f"error: {error.message}", markup=False, highlight=False, soft_wrap=True)
        return 2
    if args.json:
        print(json.dumps(result, indent=2))
    return 0


def pull_with_progress(model: CatalogModel, console: Console) -> Path:
    """Fetch a catalogue model, or check the one that is here, with a bar per stage on `console`."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: PullProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(f"{_STAGES[progress.stage]} {model.name}", total=None)
            bars.update(
                tasks[progress.stage], completed=progress.num_done_bytes, total=progress.num_total_bytes or None
            )

        return pull(model, progress=show)


def _list(args: argparse.Namespace) -> dict[str, Any]:
    models = [
        {
            "name": model.name,
            "description": model.description,
            "license": model.license,
            "num_bytes": model.num_bytes,
            "source": model.requirement,
            "default": model.name == DEFAULT_MODEL,
            "state": _state(model),
            "path": str(cached_path(model)),
        }
        for model in CATALOG.values()
    ]
    if not args.json:
        table = Table("name", "size", "license", "state", "description")
        for model in models:
            mark = " (default)" if model["default"] else ""
            size = _size(int(str(model["num_bytes"])))
            table.add_row(
                f"{model['name']}{mark}", size, str(model["license"]), str(model["state"]), str(model["description"])
            )
        Console().print(table)
    return {"models": models}


def _state(model: CatalogModel) -> str:
    """Say `here`, `absent` or `damaged`, by the size alone; pulling and loading check the hash."""
    path = cached_path(model)
    if not path.is_file():
        return "absent"
    return "here" if path.stat().st_size == model.num_bytes else "damaged"


def _pull(args: argparse.Namespace) -> dict[str, Any]:
    model = CATALOG.get(args.model)
    if model is not None:
        path = pull_with_progress(model, Console(stderr=True, quiet=args.json))
        result = {"name": model.name, "path": str(path), "license": model.license, "sha256": model.sha256}
    elif is_hub_id(args.model):
        if args.json:
            disable_progress_bars()
        result = {"name": args.model, "path": str(fetch_from_hub(args.model))}
    else:
        raise ModelLoadError(f"`model` {args.model[:200]!r} is no hub id and no known name ({', '.join(CATALOG)})")
    if not args.json:
        licence = f" (license {result['license']})" if "license" in result else ""
        Console().print(f"{result['name']}{licence}: {result['path']}", highlight=False, soft_wrap=True)
    return result


def _info(args: argparse.Namespace) -> dict[str, Any]:
    if args.model in CATALOG:
        pull_with_progress(CATALOG[args.model], Console(stderr=True, quiet=args.json))
    model = load_model(args.model)
    description = describe(model)
    tokenizer = build_tokenizer(model.tokenizer)
    if not args.json:
        Console().print(_info_table(description, tokenizer))
    return asdict(description) | {
        "tokenizer": {
            "description": tokenizer.description,
            "vocab_size": tokenizer.vocab_size,
            "bos_id": tokenizer.bos_token_id,
            "eos_ids": sorted(tokenizer.eos_token_ids),
            "adds_bos": tokenizer.adds_bos,
            "num_control_tokens": len(tokenizer.control_literals),
        }
    }


def _info_table(description: ModelDescription, tokenizer: Tokenizer) -> Table:
    spec = description.spec
    heads = f"{spec.num_heads} heads of {spec.head_dim}, {spec.num_kv_heads} KV heads"
    rope = f"theta {spec.rope_theta:g}" + (f", {spec.rope_scaling.kind} scaling" if spec.rope_scaling else "")
    traits = [name for name, on in (("QKV biases", spec.qkv_bias), ("Q and K norms", spec.qk_norm)) if on] + [
        "tied head" if spec.tie_word_embeddings else "own head"
    ]
    per_token = description.kv_bytes_per_token
    at_full_context = _size(per_token["float16"] * spec.max_position_embeddings)
    kv = (
        f"{per_token['float16']:,} bytes per token, {at_full_context} at full context (16 bits, as the native executor "
        f"keeps it); {per_token['float32']:,} bytes in float32"
    )
    table = Table(title=description.name, show_header=False)
    for name, text in (
        ("file", description.path or "none (seeded random weights)"),
        ("architecture", f"{spec.architecture}, {spec.num_layers} layers, hidden {spec.hidden_size}, {heads}"),
        ("feed-forward", f"{spec.intermediate_size}; {', '.join(traits)}"),
        ("positions", f"{spec.max_position_embeddings}; rope {rope}"),
        ("parameters", f"{description.num_parameters:,}"),
        *(
            (f"  {share.encoding}", f"{share.num_tensors} tensors, {share.num_parameters:,}, {_size(share.num_bytes)}")
            for share in description.encodings
        ),
        ("weights in memory", ", ".join(f"{name} {_size(size)}" for name, size in description.weight_bytes.items())),
        ("KV cache", kv),
        ("tokenizer", f"{tokenizer.description}; {tokenizer.vocab_size:,} tokens"),
        ("special tokens", f"BOS {tokenizer.bos_token_id}, ends {sorted(tokenizer.eos_token_ids)}"),
        ("BOS added to raw prompts", "yes" if tokenizer.adds_bos else "no"),
        ("chat template", description.chat_template or "none"),
    ):
        table.add_row(name, Text(text, overflow="fold"))
    return table


def _size(num_bytes: int) -> str:
    """Write bytes as people do, in powers of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} bytes"
