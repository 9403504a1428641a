"""Settings: where they come from, which source wins, and what is said about wrong ones."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from service.config import ConfigError, ServerConfig, allowed_bounds, load_config


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)


NEVER_BY_DEFAULT = ["listen.max_connection_age_s", "limits.brownout_seconds"]


def write(tmp_path: Path, text: str) -> Path:
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "dragoman.toml"
    file.write_text(text)
    return file


def another(defaults: Any, name: str) -> object:
    """A value that the setting takes and does not have by itself."""
    default, hint = getattr(defaults, name), get_type_hints(type(defaults))[name]
    hints = [hint, *get_args(hint)]  # of `int | None` also int
    choices = [choice for part in hints if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return next(choice for choice in choices if choice != default)
    if bool in hints:
        return not default
    if Path in hints:
        return Path("/elsewhere")
    if name == "cors_origins":
        return "https://another.example"
    return "another" if str in hints else (default or 0) + 1


class TestSources:
    def test_flags_win_over_the_environment_and_that_over_the_file(self, tmp_path, monkeypatch):
        file = write(tmp_path, "[limits]\nmax_texts = 7\nmax_characters = 70\nmax_streams = 700\n")
        monkeypatch.setenv("DRAGOMAN_LIMITS__MAX_TEXTS", "8")
        monkeypatch.setenv("DRAGOMAN_LIMITS__MAX_CHARACTERS", "80")

        limits = load_config(file, {"limits.max_texts": 9, "limits.max_characters": None}).limits

        assert (limits.max_texts, limits.max_characters, limits.max_streams) == (9, 80, 700)

    def test_strings_become_the_setting_s_type(self, monkeypatch):
        monkeypatch.setenv("DRAGOMAN_LISTEN__REFLECTION", "false")
        monkeypatch.setenv("DRAGOMAN_LIFECYCLE__GRACE_S", "2.5")
        monkeypatch.setenv("DRAGOMAN_ENGINE__BUNDLE", "")

        config = load_config()

        assert (config.listen.reflection, config.lifecycle.grace_s, config.engine.bundle) == (False, 2.5, None)

    @pytest.mark.parametrize("name", ["lifecycle.unready_exit_s", "telemetry.slow_request_s", *NEVER_BY_DEFAULT])
    def test_never_is_a_value_in_every_source(self, monkeypatch, tmp_path, name):
        group, setting = name.split(".")
        variable = f"DRAGOMAN_{group}__{setting}".upper()
        never, number = (write(tmp_path / text, f"[{group}]\n{setting} = {text}\n") for text in ('"never"', "7"))

        def value(*sources: Any) -> object:
            return getattr(getattr(load_config(*sources), group), setting)

        assert value(number) == 7
        assert value(never) is None
        assert value(number, {name: "never"}) is None
        monkeypatch.setenv(variable, "never")
        assert value(number) is None
        assert value(number, {name: "8"}) == 8
        monkeypatch.delenv(variable)
        for text in ('"never"', "null"):
            monkeypatch.setenv(f"DRAGOMAN_{group}".upper(), f'{{"{setting}": {text}}}')
            assert value(number) is None

    @pytest.mark.parametrize("service", ["DRAGOMAN", "DRAGOMAN_HTTP", "DRAGOMAN_ENGINE"])
    def test_variables_that_a_cluster_sets_for_a_service_are_no_settings(self, monkeypatch, service):
        ends = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_GRPC", "PORT_50051_TCP", "PORT_50051_TCP_ADDR")
        for end in ends:
            monkeypatch.setenv(f"{service}_{end}", "10.0.0.1")
        monkeypatch.setenv(f"{service}_PORT", "tcp://10.0.0.1:50051")

        assert load_config() == ServerConfig()

    @pytest.mark.parametrize("name", ["API_KEY", "SERVER", "ADMIN_SERVER", "TLS", "TLS_CA", "CONFIG", "IMAGE"])
    def test_variables_of_clients_and_of_deployments_are_no_settings(self, monkeypatch, name):
        monkeypatch.setenv(f"DRAGOMAN_{name}", "1")

        assert load_config() == ServerConfig()


TEXT_NAME = "DRAGOMAN_LIMITS__MAX_TEXTS"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"listen.grpc_port": 99_999}, "listen.grpc_port is 99999 (flag): allowed is at least 0 and at most 65,535"),
        ({"limits.max_queue_seconds": float("nan")}, "is nan (flag): allowed is more than 0 and at most 86,400"),
        ({"telemetry.slow_request_s": "none"}, "is 'none' (flag): allowed is more than 0 and at most 86,400, or never"),
        ({"engine.precision": "int4"}, "engine.precision is 'int4' (flag): Input should be 'int8', 'fp32' or 'fp16'"),
        (
            {"engine.bundle": Path("/a"), "models.directory": Path("/b")},
            "engine.bundle (flag) and models.directory (flag) are set: a server has one of them",
        ),
        ({"listen.grcp_port": 1}, "listen.grcp_port is not a setting (flag): did you mean grpc_port?"),
        ({"telemetry.zzz": 1}, "telemetry.zzz is not a setting (flag): there are log_level, log_format"),
    ],
)
def test_wrong_setting_is_named_with_its_value_and_what_is_allowed(flags, message):
    with pytest.raises(ConfigError) as error:
        load_config(None, flags)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (TEXT_NAME, "0", f"limits.max_texts is '0' (environment {TEXT_NAME}): allowed is at least 1"),
        ("Dragoman_Limits__Max_Texts", "0", "limits.max_texts is '0' (environment Dragoman_Limits__Max_Texts)"),
        ("dragoman_limits", '{"max_texts": 0}', "limits.max_texts is 0 (environment dragoman_limits)"),
        ("DRAGOMAN_LIMITS", "[1]", "limits is [1] (environment DRAGOMAN_LIMITS): it is a group of settings"),
        ("DRAGOMAN_SECURITY_API_KEYS", "k", "did you mean DRAGOMAN_SECURITY__API_KEYS?"),
        ("DRAGOMAN_SECURTIY__API_KEYS", "k", "did you mean DRAGOMAN_SECURITY__API_KEYS?"),
    ],
)
def test_wrong_variable_is_named_as_it_is_written_whatever_else_is_given(
    monkeypatch, tmp_path, variable, value, message
):
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigError) as error:
        load_config(write(tmp_path, "[limits]\nmax_streams = 5\n"), {"limits.max_streams": 6})

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[limits]\nmax_texts = 0\n", "limits.max_texts is 0 (file FILE): allowed is"),
        (b"\xef\xbb\xbf[limits]\nmax_texts = 0\n", "limits.max_texts is 0 (file FILE): allowed is"),
        (b"[listn]\n", "listn is not a setting (file FILE): did you mean listen?"),
        (b"[limits\n", "configuration file FILE is not valid TOML"),
        (b"\xff\xfe", "configuration file FILE is not valid TOML"),
        (b"[limits]\nmax_texts = " + b"9" * 5_000, "4300 digits"),
        (None, "configuration file FILE cannot be read: No such file or directory"),
    ],
)
def test_file_that_is_wrong_is_named(tmp_path, content, message):
    file = tmp_path / "dragoman.toml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError) as error:
        load_config(file, {"limits.max_streams": 6})

    assert message.replace("FILE", str(file)) in str(error.value)


class TestRecords:
    @pytest.mark.parametrize("group", dataclasses.fields(ServerConfig), ids=lambda group: group.name)
    def test_every_setting_of_a_group_can_be_set_by_flag(self, group):
        defaults = getattr(ServerConfig(), group.name)
        given = {item.name: another(defaults, item.name) for item in dataclasses.fields(defaults)}

        config = load_config(None, {f"{group.name}.{name}": value for name, value in given.items()})

        assert dataclasses.asdict(getattr(config, group.name)) == given
        assert not {name for name, value in given.items() if value == getattr(defaults, name)}


class TestOrigins:
    @pytest.mark.parametrize(
        ("given", "taken"),
        [
            ("", ""),
            ("*", "*"),
            ("https://a.example/", "https://a.example"),
            ("HTTPS://A.example,http://[::1]:8080 ,", "https://a.example, http://[::1]:8080"),
        ],
    )
    def test_origins_are_taken_as_browsers_send_them(self, given, taken):
        assert load_config(overrides={"listen.cors_origins": given}).listen.cors_origins == taken


GROUPS = get_type_hints(ServerConfig)
HINTS = {f"{group}.{name}": str(hint) for group in GROUPS for name, hint in get_type_hints(GROUPS[group]).items()}


def test_every_number_has_bounds():
    numbers = [name for name, hint in HINTS.items() if re.search(r"\b(int|float)\b", hint)]

    assert len(numbers) > 30
    assert [one for one in numbers if not any("at most" in bound for bound in allowed_bounds(*one.split(".")))] == []
