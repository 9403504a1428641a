"""The command line as a user meets it: its commands and their help, and those that have little to say."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from service.cli import app as cli
from service.cli import doctor
from service.client.channel import DEFAULT_ADDRESS
from service.config import ListenConfig
from tests.fakes.command_line import help_defaults, run, run_against
from tests.fakes.scripted_server import running as server

__all__ = ["server"]


@pytest.mark.parametrize(
    "command", ["serve", "translate", "models", "status", "reload", "log-level", "doctor", "version"]
)
def test_every_command_explains_itself(command):
    result = run(command, "--help")

    assert result.exit_code == 0
    assert f"dragoman {command}" in result.stdout.replace("root", "dragoman")


def test_help_loads_no_runtime():
    heavy = ("numpy", "onnxruntime", "grpc", "google.protobuf", "sentencepiece", "pydantic_settings", "torch")
    code = f"import sys, service.cli.app; sys.exit(' '.join(n for n in {heavy!r} if n in sys.modules) or None)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_exit_codes_are_documented():
    for code in (cli.EXIT_SOME_FAILED, cli.EXIT_USAGE, cli.EXIT_NO_ANSWER, cli.EXIT_INTERRUPTED):
        assert f"\n    {code} " in (cli.__doc__ or "")


def test_client_and_server_meet_by_default():
    listen = ListenConfig()

    assert f"{listen.grpc_host}:{listen.grpc_port}" == DEFAULT_ADDRESS
    assert help_defaults("translate")["--server"].endswith(f"else {DEFAULT_ADDRESS}")


def test_version_names_the_program_and_its_runtime():
    lines = run("version").stdout.splitlines()

    assert lines[0].startswith("dragoman 0.")
    assert any(line.startswith("grpcio ") for line in lines)


async def test_models_are_shown_as_a_table_or_as_json(server):
    table = await run_against(server, "models")
    rows = json.loads((await run_against(server, "models", "--json")).stdout)

    heading, row = table.stdout.splitlines()
    assert heading.split() == ["MODEL", "VERSION", "FROM", "TO", "PRECISION", "DEVICE", "BEAM"]
    assert row.startswith("loud ")
    assert heading.index("BEAM") == row.index("4")
    assert rows[0]["name"] == "loud"
    assert rows[0]["default_options"]["beam_size"] == 4


def test_bulk_refuses_an_outage_of_a_server_that_it_does_not_call():
    result = run("bulk", "in.txt", "out.txt", "--bundle", "b", "--max-outage", "300")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("dragoman: give --bundle or --max-outage, not both")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bulk", "in.txt", "out.txt", "--server", "a:1", "--bundle", "b"], "give --server or --bundle, not both"),
        (["bulk", "in.txt", "out.txt", "--precision", "int8"], "--precision needs --bundle"),
        (["models", "--server", "a:1", "--bundle", "b"], "give --server or --bundle, not both"),
    ],
)
def test_option_that_would_be_ignored_is_refused(arguments, message):
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dragoman: {message}")


def findings(*levels: doctor.Level) -> Callable[[doctor.Target], Iterator[doctor.Finding]]:
    return lambda _: iter([doctor.Finding(level, f"check {index}", "detail") for index, level in enumerate(levels)])


@pytest.mark.parametrize(
    ("levels", "exit_code"),
    [
        ([doctor.Level.PASS], 0),
        ([doctor.Level.PASS, doctor.Level.WARN], 0),
        ([doctor.Level.FAIL, doctor.Level.PASS], 1),
    ],
)
def test_doctor_fails_only_for_failures(monkeypatch, levels, exit_code):
    monkeypatch.setattr(doctor, "examine", findings(*levels))

    assert run("doctor").exit_code == exit_code
    assert [row["level"] for row in json.loads(run("doctor", "--json").stdout)] == [str(level) for level in levels]


def test_doctor_prints_one_line_a_finding(monkeypatch):
    monkeypatch.setattr(doctor, "examine", findings(doctor.Level.PASS, doctor.Level.FAIL))

    assert run("doctor").stdout == "PASS  check 0: detail\nFAIL  check 1: detail\n"
