"""`dragoman serve`: its flags and settings, what it says of them, and how it ends."""

import asyncio
import json
import signal
import threading
from dataclasses import asdict

import pytest

from service.cli import serve_command
from service.client.channel import ClientConfig
from service.config import ServerConfig, load_config
from tests.fakes.command_line import help_defaults, run
from tests.fakes.scripted_server import running as server

__all__ = ["server"]

SERVE_FLAGS = {
    "--bundle": ("engine", "bundle", "some/where"),
    "--precision": ("engine", "precision", "fp32"),
    "--engines": ("engine", "num_engines", 3),
    "--threads": ("engine", "threads", 5),
    "--max-rows": ("engine", "max_rows", 77),
    "--host": ("listen", "grpc_host", "0.0.0.0"),
    "--port": ("listen", "grpc_port", 1234),
    "--http-host": ("listen", "http_host", "0.0.0.0"),
    "--http-port": ("listen", "http_port", 4321),
    "--max-texts": ("limits", "max_texts", 9),
    "--max-characters": ("limits", "max_characters", 99),
    "--max-beam-size": ("limits", "max_beam_size", 6),
    "--max-concurrent-requests": ("limits", "max_concurrent_requests", 12),
    "--max-queued-tokens": ("limits", "max_queued_tokens", 1_000),
    "--max-request-seconds": ("limits", "max_request_seconds", 2.5),
    "--max-queue-seconds": ("limits", "max_queue_seconds", 7.5),
    "--models": ("models", "directory", "some/where"),
    "--models-public-key": ("models", "public_key", "some/key.pem"),
    "--admin-host": ("listen", "admin_host", "0.0.0.0"),
    "--admin-port": ("listen", "admin_port", 5_678),
    "--tls-certificate": ("security", "tls_certificate", "some/chain.pem"),
    "--tls-key": ("security", "tls_key", "some/key.pem"),
    "--tls-client-ca": ("security", "tls_client_ca", "some/ca.pem"),
    "--api-keys": ("security", "api_keys", "some/keys.toml"),
    "--slow-request": ("telemetry", "slow_request_s", 1.25),
    "--otlp-endpoint": ("telemetry", "otlp_endpoint", "http://127.0.0.1:4317"),
    "--drain-delay": ("lifecycle", "drain_delay_s", 1.5),
    "--grace": ("lifecycle", "grace_s", 3.5),
    "--log-level": ("telemetry", "log_level", "debug"),
    "--log-format": ("telemetry", "log_format", "json"),
}


@pytest.fixture
def no_preflight(monkeypatch) -> None:
    """Settings may name files that do not exist."""
    monkeypatch.setattr(serve_command, "preflight", lambda _: None)


@pytest.mark.usefixtures("no_preflight")
@pytest.mark.parametrize("flag", SERVE_FLAGS)
def test_every_flag_of_serve_changes_its_own_setting(flag):
    group, name, value = SERVE_FLAGS[flag]
    default = json.loads(run("serve", "--check-config").stdout)
    changed = json.loads(run("serve", "--check-config", flag, str(value)).stdout)

    assert changed[group][name] == value != default[group][name]
    default[group][name] = value
    assert changed == default


@pytest.mark.parametrize(
    ("flag", "group", "name", "value"),
    [
        ("--no-reflection", "listen", "reflection", False),
        ("--no-http", "listen", "http", False),
        ("--watch-models", "models", "watch", True),
    ],
)
def test_switches_of_serve(flag, group, name, value):
    settings = json.loads(run("serve", "--check-config").stdout)
    changed = json.loads(run("serve", "--check-config", flag).stdout)

    assert (settings[group][name], changed[group][name]) == (not value, value)


def test_help_says_the_defaults_that_the_settings_have():
    settings = asdict(ServerConfig())
    said = help_defaults("serve")
    values = {flag: settings[group][name] for flag, (group, name, _) in SERVE_FLAGS.items()}
    real = {flag: f"{value:g}" if isinstance(value, int | float) else str(value) for flag, value in values.items()}

    for flag, group, name in (
        ("--reflection", "listen", "reflection"),
        ("--http", "listen", "http"),
        ("--watch-models", "models", "watch"),
    ):
        assert said.pop(flag) == ("on" if settings[group][name] else "off")
    assert said.pop("--admin-port") == "none"
    assert said.pop("--engines") == "allowed CPUs, 16 at most"
    assert said.pop("--threads") == "allowed CPUs / engines"
    assert said == {flag: real[flag] for flag in said}
    assert len(said) > 10
    assert help_defaults("doctor") == {flag: real[flag] for flag in ("--port", "--http-port")}
    assert float(help_defaults("translate")["--timeout"]) == ClientConfig().timeout_s


def test_serve_check_config_shows_flags_settings_and_environment(tmp_path):
    (tmp_path / "dragoman.toml").write_text("[limits]\nmax_texts = 3\nmax_characters = 5\n")
    arguments = ["--config", str(tmp_path / "dragoman.toml"), "--port", "0", "--set", "limits.max_characters=7"]

    result = run("serve", "--check-config", *arguments, env={"DRAGOMAN_LIFECYCLE__GRACE_S": "4"})

    settings = json.loads(result.stdout)
    assert settings["listen"]["grpc_port"] == 0
    assert (settings["limits"]["max_texts"], settings["limits"]["max_characters"]) == (3, 7)
    assert settings["lifecycle"]["grace_s"] == 4.0


def test_print_config_says_where_each_setting_comes_from(tmp_path):
    file = tmp_path / "dragoman.toml"
    file.write_text("[limits]\nmax_texts = 3\nmax_characters = 5\n")

    result = run(
        *("serve", "--print-config", "--config", str(file), "--port", "0", "--set", "limits.max_characters=7"),
        env={"DRAGOMAN_LIFECYCLE__GRACE_S": "4"},
    )

    lines = {" ".join(line.split()) for line in result.stdout.splitlines()}
    assert {
        "grpc_port = 0 # flag",
        f"max_texts = 3 # file {file}",
        "max_characters = 7 # flag",
        "grace_s = 4.0 # environment DRAGOMAN_LIFECYCLE__GRACE_S",
        "max_beam_size = 16 # default",
        "# tls_key is not set # default",
    } <= lines


def test_printed_settings_are_a_configuration_file(tmp_path):
    file = tmp_path / "dragoman.toml"
    given = ("--port", "0", "--slow-request", "0.5", "--no-http")
    file.write_text(run("serve", "--print-config", *given).stdout)

    assert load_config(file) == load_config(
        None, {"listen.grpc_port": 0, "listen.http": False, "telemetry.slow_request_s": 0.5}
    )


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--slow-request", "never", "--set", "lifecycle.unready_exit_s=never"], {}),
        ([], {"DRAGOMAN_TELEMETRY__SLOW_REQUEST_S": "never", "DRAGOMAN_LIFECYCLE": '{"unready_exit_s": null}'}),
    ],
)
def test_never_is_printed_so_that_it_holds_when_it_is_read_again(tmp_path, arguments, variables):
    file = tmp_path / "dragoman.toml"
    file.write_text(run("serve", "--print-config", *arguments, env=variables).stdout)

    config = load_config(file)

    assert (config.lifecycle.unready_exit_s, config.telemetry.slow_request_s) == (None, None)
    assert config == load_config(None, {"lifecycle.unready_exit_s": "never", "telemetry.slow_request_s": "never"})
    assert 'max_connection_age_s = "never"' in file.read_text()


def test_check_config_looks_at_the_model_too():
    result = run("serve", "--check-config", "--bundle", "no-such-bundle")

    assert result.exit_code == 2
    assert "no-such-bundle is no directory, and no included model (" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "listen.grpc_port is 99999"),
        (["--set", "limits.max_text=3"], "did you mean max_texts"),
        (["--set", "max_texts"], "write GROUP.NAME=VALUE"),
        (["--config", "no-such.toml"], "no-such.toml cannot be read"),
    ],
)
def test_wrong_settings_stop_serve_with_one_line_and_exit_code_2(arguments, message):
    result = run("serve", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_serve_ends_with_the_server_s_exit_code(monkeypatch):
    async def refuse(_: object) -> int:
        return 1

    monkeypatch.setattr("service.server.lifecycle.serve", refuse)

    assert run("serve").exit_code == 1


def test_serve_is_not_ended_by_a_wish_to_reload_that_comes_too_early():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        run("serve", "--print-config")

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_serve_demo_translates_one_text_and_prints_both(server, monkeypatch):
    async def serve_until_printed(_: object) -> int:
        (demo,) = (thread for thread in threading.enumerate() if thread.name == "demo")
        await asyncio.to_thread(demo.join)
        return 0

    monkeypatch.setattr("service.server.lifecycle.serve", serve_until_printed)
    result = await asyncio.to_thread(run, "serve", "--port", server.address.split(":")[1], "--demo", "good day")

    assert result.exit_code == 0
    assert "  good day\n  GOOD DAY\n" in result.stdout


def test_serve_demo_ends_quietly_when_the_server_never_starts(monkeypatch):
    async def refuse(_: object) -> int:
        return 1

    monkeypatch.setattr("service.server.lifecycle.serve", refuse)
    result = run("serve", "--port", "1", "--demo", "good day")

    assert result.exit_code == 1
    assert "Traceback" not in result.output
