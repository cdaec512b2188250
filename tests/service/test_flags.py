"""Flags over variables over defaults, and the configurations made from them."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from service.flag_view import flag_views
from service.flags import Flag, add_flags, num_bytes, resolve, switch, words
from service.serve_flags import ENGINE_FLAGS, SERVICE_FLAGS, engine_config, service_settings
from service.settings import ServiceSettings

FLAGS = (Flag("--max-size", int, 5, "a size"), Flag("--no-cache", switch, False, "a switch"))


def values(*arguments: str, **environment: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser, FLAGS)
    return resolve(FLAGS, parser.parse_args(arguments), environment)


def settings(environment: dict[str, str]) -> ServiceSettings:
    flags = (*ENGINE_FLAGS, *SERVICE_FLAGS)
    return service_settings(resolve(flags, argparse.Namespace(), environment), environment)


def test_flag_beats_variable_and_variable_beats_default() -> None:
    assert values() == {"max_size": 5, "no_cache": False}
    assert values(PELLUCID_MAX_SIZE="7", PELLUCID_NO_CACHE="yes") == {"max_size": 7, "no_cache": True}
    assert values("--max-size", "9", "--no-cache", PELLUCID_MAX_SIZE="7") == {"max_size": 9, "no_cache": True}


def test_empty_variable_is_as_good_as_none() -> None:
    assert values(PELLUCID_MAX_SIZE="", PELLUCID_NO_CACHE="") == {"max_size": 5, "no_cache": False}


@pytest.mark.parametrize(("name", "text"), [("PELLUCID_MAX_SIZE", "x"), ("PELLUCID_NO_CACHE", "perhaps")])
def test_variable_that_can_not_be_parsed_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        values(**{name: text})


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("2k", 2048), ("3M", 3 << 20), ("1GiB", 1 << 30)])
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert num_bytes(text) == size


def test_view_says_what_set_each_flag_and_what_it_does() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, FLAGS)
    for arguments, environment, said in (
        ([], {}, ("default", 5)),
        ([], {"PELLUCID_MAX_SIZE": ""}, ("default", 5)),
        ([], {"PELLUCID_MAX_SIZE": "7"}, ("environment", 7)),
        (["--max-size", "9"], {"PELLUCID_MAX_SIZE": "7"}, ("flag", 9)),
    ):
        args = parser.parse_args(arguments)
        size, cache = flag_views("service", FLAGS, resolve(FLAGS, args, environment), args, environment)
        assert (size.source, size.value) == said
        assert (size.flag, size.variable, size.default, size.text) == ("--max-size", "PELLUCID_MAX_SIZE", "5", "a size")
        assert (cache.source, cache.value, cache.default) == ("default", False, "off")


def test_words_are_cut_at_commas() -> None:
    assert words(" a, b,,c ") == ("a", "b", "c")


def test_defaults_of_the_flags_are_those_of_the_configurations() -> None:
    resolved = resolve((*ENGINE_FLAGS, *SERVICE_FLAGS), argparse.Namespace(), {})
    assert engine_config(resolved) == EngineConfig(model=resolved["model"])
    assert service_settings(resolved, {}) == ServiceSettings()


@pytest.mark.parametrize("flag", ["--keep-alive", "--filler", "--ready-heartbeat", "--live-heartbeat", "--grace"])
@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_seconds_out_of_range_are_refused_by_the_name_of_the_flag(flag: str, seconds: str) -> None:
    variable = "PELLUCID_" + flag.removeprefix("--").replace("-", "_").upper()
    with pytest.raises(ConfigError, match=f"^{flag} must be"):
        settings({variable: seconds})


def test_prefix_cache_is_switched_off_by_its_flag() -> None:
    resolved = resolve((*ENGINE_FLAGS, *SERVICE_FLAGS), argparse.Namespace(), {"PELLUCID_NO_PREFIX_CACHE": "1"})
    assert engine_config(resolved).prefix_cache is False


def test_keys_come_from_file_and_variable(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\none\n\n two \n")
    given = {"PELLUCID_API_KEY_FILE": str(path), "PELLUCID_API_KEY": "three"}
    assert settings(given).api_keys == {"one", "two", "three"}


def test_key_file_without_a_key_is_refused_because_it_would_open_the_server(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="no key"):
        settings({"PELLUCID_API_KEY_FILE": str(path)})


def test_telemetry_variables_are_read_with_the_flags() -> None:
    found = settings(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
            "OTEL_TRACES_SAMPLER": "always_off",
            "PELLUCID_LOG_CONTENT": "1",
        }
    )
    assert found.otlp.traces.endpoint == "http://c:4318/v1/traces"
    assert found.sampling.ratio == 0
    assert found.log_content


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere"), ("OTEL_TRACES_SAMPLER", "sometimes")]
)
def test_telemetry_variable_that_cannot_be_used_is_refused(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=value):
        settings({variable: value})
