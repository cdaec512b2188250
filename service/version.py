"""The version of the project, as installed."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("pellucid")
    except PackageNotFoundError:
        return "0+unknown"  # run from a checkout that isn't installed


VERSION = _version()
