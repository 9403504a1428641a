"""`dragoman serve`: its flags and settings, what it prints of them, and how it ends."""

import json
import signal

import pytest

from service.cli.serve import FLAGS
from service.config import load_config
from tests.fakes.command_line import run

GIVEN = {
    "bundle": "some/where",
    "models": "else/where",
    "engines": 3,
    "host": "0.0.0.0",
    "port": 1234,
    "http_port": 4321,
    "admin_port": 5_678,
}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_changes_its_own_setting(flag, monkeypatch):
    for check in ("check_files", "check_bundles"):  # settings may name files that do not exist
        monkeypatch.setattr(f"service.server.checks.{check}", lambda _: [])
    group, name = FLAGS[flag].split(".")
    default = json.loads(run("serve", "--check-config").stdout)

    changed = json.loads(run("serve", "--check-config", f"--{flag.replace('_', '-')}", str(GIVEN[flag])).stdout)

    assert changed[group][name] == GIVEN[flag] != default[group][name]
    default[group][name] = GIVEN[flag]
    assert changed == default


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


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        ("--set telemetry.slow_request_s=never --set lifecycle.unready_exit_s=never", {}),
        ("", {"DRAGOMAN_TELEMETRY__SLOW_REQUEST_S": "never", "DRAGOMAN_LIFECYCLE": '{"unready_exit_s": null}'}),
    ],
)
def test_printed_settings_are_a_configuration_file(tmp_path, arguments, variables):
    file = tmp_path / "dragoman.toml"
    given = ["--port", "0", "--set", "listen.http=false", *arguments.split()]

    file.write_text(run("serve", "--print-config", *given, env=variables).stdout)

    never = {"lifecycle.unready_exit_s": "never", "telemetry.slow_request_s": "never"}
    assert load_config(file) == load_config(None, {"listen.grpc_port": 0, "listen.http": False, **never})
    assert load_config(file).lifecycle.unready_exit_s is None
    assert 'max_connection_age_s = "never"' in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--set listen.grpc_port=99999", "listen.grpc_port is '99999'"),
        ("--set limits.max_text=3", "did you mean max_texts"),
        ("--set max_texts", "write GROUP.NAME=VALUE"),
        ("--config no-such.toml", "no-such.toml cannot be read"),
        ("--check-config --bundle no-such-bundle", "no-such-bundle is no directory, and no included model ("),
    ],
)
def test_wrong_settings_stop_serve_with_one_line_and_exit_code_2(arguments, message):
    result = run("serve", *arguments.split())

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_serve_is_not_ended_by_a_wish_to_reload_that_comes_too_early():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        run("serve", "--print-config")

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_serve_ends_with_the_server_s_exit_code(monkeypatch):
    async def refuse(_: object) -> int:
        return 1

    monkeypatch.setattr("service.server.main.serve", refuse)
    result = run("serve", "--port", "1")

    assert (result.exit_code, result.output) == (1, "")
