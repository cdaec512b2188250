"""`pellucid`: one command, one module per subcommand. Exit codes: 0 ok, 1 the thing checked failed, 2 bad usage."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from service.version import VERSION

COMMANDS = ("serve", "chat", "models", "top", "trace", "kernels", "bench", "loadtest")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Only the module of the command asked for is imported; help for all of them imports all.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="pellucid", description="An LLM serving stack that people can see through.")
    parser.add_argument("--version", action="version", version=f"pellucid {VERSION}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = next((word for word in arguments if not word.startswith("-")), "")
    for name in COMMANDS if asked not in COMMANDS else (asked,):
        importlib.import_module(f"service.commands.{name}").register(subparsers)
    args = parser.parse_args(arguments)
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing can be said to it any more
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
