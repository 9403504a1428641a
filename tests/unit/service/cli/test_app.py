"""The command line as a user meets it: its commands and their help, and those that have little to say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import app as cli
from tests.fakes.command_line import run, run_against
from tests.fakes.scripted_server import running as server

__all__ = ["server"]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(command):
    result = run(command, "--help")

    assert result.exit_code == 0
    assert f"dragoman {command}" in result.stdout.replace("root", "dragoman")


def test_help_lists_every_command_and_a_mistyped_one_is_recognised():
    shown = run("--help").stdout
    no_command = {"__init__", "app", "options", "output"}

    files = {file.stem for file in Path(cli.__file__).parent.glob("*.py")} - no_command
    assert files == {cli.FILES.get(command, command) for command in cli.COMMANDS}
    assert [command for command in cli.COMMANDS if f"  {command} " not in shown] == []
    assert "Did you mean 'serve'" in run("serv").output


def test_help_loads_no_runtime():
    heavy = ("numpy", "onnxruntime", "grpc", "google.protobuf", "sentencepiece", "pydantic_settings", "torch")
    code = (
        "import sys; from service.cli.app import app; app(['--help'], standalone_mode=False); "
        f"sys.exit(' '.join(n for n in {heavy!r} if n in sys.modules) or None)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


async def test_models_are_shown_as_a_table_or_as_json(server):
    table = await run_against(server, "models")
    rows = json.loads((await run_against(server, "models", "--json")).stdout)

    heading, row = table.stdout.splitlines()
    assert heading.split() == ["MODEL", "VERSION", "FROM", "TO", "PRECISION", "DEVICE", "RUNTIME", "BEAM"]
    assert row.startswith("loud ")
    assert heading.index("BEAM") == row.index("4")
    assert (rows[0]["name"], rows[0]["default_options"]["beam_size"]) == ("loud", 4)


def test_models_are_not_added_without_the_libraries_of_the_import(tmp_path, monkeypatch):
    monkeypatch.setattr("service.cli.models.find_spec", lambda name: None)

    result = run("models", "add", str(tmp_path), "--models", str(tmp_path / "models"))

    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert (
        "an import needs PyTorch, which is not installed: pip install '.[cpu,export]' from a checkout" in result.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bulk in.txt out.txt --bundle b --max-outage 300", "give --bundle or --max-outage, not both"),
        ("bulk in.txt out.txt --server a:1 --bundle b", "give --server or --bundle, not both"),
        ("bulk in.txt out.txt --precision int8", "--precision needs --bundle"),
        ("models --server a:1 --bundle b", "give --server or --bundle, not both"),
    ],
)
def test_option_that_would_be_ignored_is_refused(arguments, message):
    result = run(*arguments.split())

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dragoman: {message}")
    assert result.stderr.count("\n") == 1


def test_version_names_the_program_and_its_runtime():
    lines = run("version").stdout.splitlines()

    assert lines[0].startswith("dragoman 0.")
    assert any(line.startswith("grpcio ") for line in lines)
