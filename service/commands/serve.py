"""`pellucid serve`: the service alone."""

import argparse
import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import ConfigError, ModelLoadError
from service.flag_view import flag_views
from service.flags import add_flags, resolve
from service.serve_flags import ENGINE_FLAGS, SERVICE_FLAGS, engine_config, service_settings
from service.settings import environment

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_FAILED, EXIT_USAGE = 1, 2


def register(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve a model over HTTP. Every flag is also an environment variable, named with its help.",
    )
    add_flags(parser.add_argument_group("engine"), ENGINE_FLAGS)
    add_flags(parser.add_argument_group("service"), SERVICE_FLAGS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop; 0 after that, 2 for a bad flag or a model that can't be loaded, 1 for a busy port."""
    try:
        values = resolve((*ENGINE_FLAGS, *SERVICE_FLAGS), args, environment())
        config, settings = engine_config(values), service_settings(values, environment())
        settings = replace(
            settings,
            flags=(
                *flag_views("engine", ENGINE_FLAGS, values, args, environment()),
                *flag_views("service", SERVICE_FLAGS, values, args, environment()),
            ),
        )
    except ConfigError as error:
        return _fail(error.message, EXIT_USAGE)
    logging.basicConfig(
        stream=sys.stderr, level=values["log_level"].upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if values["log_level"] == "info":
        logging.getLogger("uvicorn.error").setLevel(
            logging.WARNING
        )  # its comings and goings are said by service/main.py
    if values["log_level"] != "debug":
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # observability/span_queue.py says it once
    from service.main import serve  # the tokenizer's and the template's libraries take a second; bad flags needn't wait

    try:
        return serve(config, settings)
    except (ModelLoadError, ConfigError) as error:
        return _fail(error.message, EXIT_USAGE)
    except OSError as error:
        return _fail(f"can't listen on {settings.host}:{settings.port}: {_reason(error)}", EXIT_FAILED)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)  # strerror repeats the address


def _fail(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code
