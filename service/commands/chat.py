"""`pellucid chat`: talk to a server from the terminal; answers appear as they are made."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
from rich.console import Console

from engine.errors import ConfigError
from service.chat_client import ChatClient, ChatFailedError
from service.flags import Flag, add_flags, resolve
from service.settings import environment

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FLAGS = (
    Flag("--url", str, "http://127.0.0.1:8100", "the server"),
    Flag("--chat-model", str, "", "the model to ask for", shown_default="the server's first"),
    Flag("--system", str, "", "a system message to begin with", shown_default="none"),
    Flag("--temperature", float, 0.7, "0 always takes the likeliest token"),
    Flag("--max-tokens", int, 512, "tokens of one answer at most"),
)
HELP = "/new forgets the conversation, /exit or Ctrl-D ends."


def register(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser("chat", help="talk to a server from the terminal", description=__doc__)
    parser.add_argument("message", nargs="*", help="ask this one question and end; without it, talk")
    add_flags(parser, FLAGS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Talk; 0 at the end, 1 when the server fails, 2 for a bad flag."""
    try:
        values = resolve(FLAGS, args, environment())
    except ConfigError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    client = ChatClient(
        values["url"],
        api_key=environment().get("PELLUCID_API_KEY", ""),
        model=values["chat_model"],
        temperature=values["temperature"],
        max_tokens=values["max_tokens"],
    )
    opening: list[dict[str, Any]] = [{"role": "system", "content": values["system"]}] if values["system"] else []
    with client:
        if args.message:
            return _once(client, [*opening, {"role": "user", "content": " ".join(args.message)}])
        return _talk(client, opening)


def _once(client: ChatClient, messages: list[dict[str, Any]]) -> int:
    try:
        for piece in client.stream(messages):
            sys.stdout.write(piece)
            sys.stdout.flush()
    except (ChatFailedError, httpx.HTTPError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print()
    return 0


def _talk(client: ChatClient, opening: list[dict[str, Any]]) -> int:
    console = Console(highlight=False)
    console.print(f"[dim]{HELP}[/]")
    messages = list(opening)
    for line in _lines(console):
        if line == "/exit":
            break
        if line == "/new":
            messages = list(opening)
            console.print("[dim]a new conversation[/]")
            continue
        messages.append({"role": "user", "content": line})
        answer = _show(client, messages, console)
        if answer is None:
            messages.pop()  # it can be asked again
        else:
            messages.append({"role": "assistant", "content": answer})
    return 0


def _lines(console: Console) -> Iterator[str]:
    while True:
        try:
            line = console.input("[bold cyan]you ›[/] ").strip()
        except EOFError:
            console.print()
            return
        if line:
            yield line


def _show(client: ChatClient, messages: list[dict[str, Any]], console: Console) -> str | None:
    """Print an answer as it comes and return it; Ctrl-C cuts it short, a failure is printed and gives None."""
    pieces: list[str] = []
    try:
        for piece in client.stream(messages):
            pieces.append(piece)
            console.print(piece, end="", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("\n[dim]cut short[/]")
        return "".join(pieces)
    except (ChatFailedError, httpx.HTTPError) as error:
        console.print(f"\n[red]error:[/] {error}", markup=True)
        return None
    console.print()
    if client.last_speed:
        console.print(f"[dim]{client.last_speed}[/]")
    return "".join(pieces)
