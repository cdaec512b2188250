"""`pellucid serve` in every respect but its engine, which recites; takes the same flags."""

import argparse
import logging
import sys

from engine.launch import process_launcher
from service.flags import add_flags, resolve
from service.main import serve
from service.serve_flags import ENGINE_FLAGS, SERVICE_FLAGS, engine_config, service_settings

FLAGS = (*ENGINE_FLAGS, *SERVICE_FLAGS)


def main(arguments: list[str]) -> int:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="scripted_server", description=__doc__)
    add_flags(parser, FLAGS)
    values = resolve(FLAGS, parser.parse_args(arguments), {})
    logging.basicConfig(stream=sys.stderr, level=values["log_level"].upper())
    launcher = process_launcher("scripts.serving.scripted_engine")
    return serve(engine_config(values), service_settings(values, {}), launcher=launcher)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
