"""The command line as a user meets it: what it prints where, and its exit codes."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer
from grpc_health.v1 import health_pb2
from typer.testing import CliRunner, Result

from protos import translation_pb2 as pb
from service.client.channel import DEFAULT_ADDRESS, ClientConfig
from service.commands import cli, doctor, serve_command
from service.commands.cli import app
from service.config import ListenConfig, ServerConfig, load_config
from service.engine.job import FinishReason
from service.models.codec import BLANK_TRANSLATION
from service.models.local import LocalTranslator
from service.translation import TranslatedText, TranslateOptions, Translation
from tests.fakes.scripted_server import Context, ScriptedServer, failing

Run = Callable[..., Result]


def run(*arguments: str, stdin: str | bytes | None = None, env: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=stdin, env={"DRAGOMAN_SERVER": None, **(env or {})})


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    await scripted.server.start()
    yield scripted
    await scripted.server.stop(grace=None)


async def run_against(server: ScriptedServer, *arguments: str, stdin: str | bytes | None = None) -> Result:
    return await asyncio.to_thread(run, *arguments, "--server", server.address, stdin=stdin)


class Mirror:
    """Stands for the in-process translator: words backwards."""

    def __init__(self) -> None:
        self.opened: dict[str, Any] = {}
        self.options: TranslateOptions | None = None

    def open(self, directory: Path, **arguments: Any) -> "Mirror":
        self.opened = {"directory": directory, **arguments}
        return self

    def require(self, **names: str | None) -> None:
        self.opened |= names

    def translate_all(self, texts: Iterable[str], options: TranslateOptions) -> Iterator[Translation]:
        self.options = options
        for text in texts:
            hypothesis = TranslatedText(
                text=text[::-1], score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1
            )
            yield Translation(hypotheses=(hypothesis,)) if text.strip() else BLANK_TRANSLATION


@pytest.fixture
def mirror(monkeypatch) -> Mirror:
    fake = Mirror()
    monkeypatch.setattr(LocalTranslator, "open", fake.open)
    return fake


async def test_translate_prints_one_translation_a_line(server):
    result = await run_against(server, "translate", "one", "two")

    assert (result.exit_code, result.stdout) == (0, "ONE\nTWO\n")


async def test_translate_reads_standard_input_and_keeps_blank_lines(server):
    result = await run_against(server, "translate", stdin="one\n\n  \ntwö\n")

    assert result.stdout.split("\n") == ["ONE", "", "  ", "TWÖ", ""]


async def test_translate_reads_a_file_of_any_length_in_order(server, tmp_path):
    words = [f"word {number}" for number in range(500)]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")

    result = await run_against(server, "translate", "--file", str(tmp_path / "words.txt"), "--batch-size", "7")

    assert result.stdout.splitlines() == [word.upper() for word in words]
    assert {len(request.texts) for request in server.service.requests} == {7, 500 % 7}


async def test_translate_sends_the_options_it_was_given_and_no_others(server):
    arguments = ["--beam-size", "2", "--length-penalty", "0.6", "--from", "en", "--to", "de", "--model", "loud"]
    await run_against(server, "translate", "one", *arguments)

    (request,) = server.service.requests
    assert (request.source_language, request.target_language, request.model) == ("en", "de", "loud")
    assert {field.name for field, _ in request.options.ListFields()} == {"beam_size", "length_penalty"}


async def test_translate_json_has_scores(server):
    result = await run_against(server, "translate", "--json", "one")

    row = json.loads(result.stdout)
    assert (row["source"], row["hypotheses"][0]["text"], row["hypotheses"][0]["score"]) == ("one", "ONE", -0.5)


async def test_translate_several_hypotheses_are_numbered(server):
    result = await run_against(server, "translate", "-n", "2", "one")

    assert result.stdout == "1\t-0.5000\tONE\n"


async def test_one_failed_text_leaves_an_empty_line_and_exit_code_1(server):
    async def second_fails(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        bad = pb.Status(code=3, message="texts[1] has 900 tokens, at most 512 are accepted")
        translations = [pb.Translation(hypotheses=[pb.Hypothesis(text=text)]) for text in request.texts]
        translations[1] = pb.Translation(status=bad)
        return pb.TranslateResponse(translations=translations)

    server.service.handler = second_fails
    result = await run_against(server, "translate", "a", "b", "c")

    assert (result.exit_code, result.stdout) == (1, "a\n\nc\n")
    assert result.stderr == "dragoman: line 2: the text has 900 tokens, at most 512 are accepted\n"


async def test_bytes_that_are_no_text_leave_an_empty_line(server):
    result = await run_against(server, "translate", stdin=b"one\n\xff\xfe\ntwo\n")

    assert (result.exit_code, result.stdout) == (1, "ONE\n\nTWO\n")
    assert "line 2: the text is not valid UTF-8" in result.stderr


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.NOT_FOUND, 2),
        (grpc.StatusCode.INTERNAL, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 3),
    ],
)
async def test_a_failed_call_is_one_line_and_an_exit_code(server, code, exit_code):
    server.service.handler = failing(code, "given 7, at most 5")
    result = await run_against(server, "translate", "one")

    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr == "dragoman: given 7, at most 5\n"


async def test_a_server_that_is_not_ready_is_named_with_a_way_out(server):
    await server.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    result = await run_against(server, "translate", "one", "--wait", "0.1")

    assert result.exit_code == 3
    assert f"no server was ready at {server.address} within 0.1 s" in result.stderr
    assert "dragoman serve" in result.stderr
    assert "--bundle" in result.stderr


async def test_the_server_s_address_can_come_from_the_environment(server):
    result = await asyncio.to_thread(run, "translate", "one", env={"DRAGOMAN_SERVER": server.address})

    assert result.stdout == "ONE\n"


def test_translate_in_process_needs_no_server(mirror):
    result = run("translate", "--bundle", "some/where", "--threads", "1", "--precision", "fp32", stdin="abc\n\nxyz\n")

    assert (result.exit_code, result.stdout) == (0, "cba\n\nzyx\n")
    assert mirror.opened["directory"] == Path("some/where")
    assert (mirror.opened["threads"], mirror.opened["precision"]) == (1, "fp32")


def test_translate_in_process_hands_on_options_and_names(mirror):
    run("translate", "--bundle", "x", "--beam-size", "3", "--to", "de", "one")

    assert mirror.options == TranslateOptions(beam_size=3)
    assert mirror.opened["target_language"] == "de"


def test_default_is_the_name_of_the_included_bundle(mirror):
    run("translate", "--bundle", "default", "one")

    assert mirror.opened["directory"].parts[-3:] == ("model", "pretrained", "en-de")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "--file", "words.txt"], "texts or --file"),
        (["one", "--server", "a:1", "--bundle", "b"], "--server or --bundle"),
        (["--file", "no-such-file", "--bundle", "b"], "no-such-file"),
        (["one", "--bundle", "no-such-bundle"], "no-such-bundle is not a bundle"),
        (["one", "--nonsense"], "No such option"),
        (["one", "--batch-size", "0"], "--batch-size"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what(arguments, message):
    result = run("translate", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_bulk_refuses_an_outage_of_a_server_that_it_does_not_call():
    result = run("bulk", "in.txt", "out.txt", "--bundle", "b", "--max-outage", "300")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("dragoman: give --bundle or --max-outage, not both")
    assert result.stderr.count("\n") == 1


def test_progress_is_silent_unless_standard_error_is_a_terminal(mirror):
    assert run("translate", "--bundle", "x", "one").stderr == ""
    assert "1/1" in run("translate", "--bundle", "x", "one", "--progress").stderr


def test_progress_never_mixes_with_the_translations(mirror):
    result = run("translate", "--bundle", "x", "--progress", stdin="ab\ncd\n")

    assert result.stdout == "ba\ndc\n"


async def test_models_are_shown_as_a_table_or_as_json(server):
    table = await run_against(server, "models")
    rows = json.loads((await run_against(server, "models", "--json")).stdout)

    heading, row = table.stdout.splitlines()
    assert heading.split() == ["MODEL", "VERSION", "FROM", "TO", "PRECISION", "DEVICE", "BEAM"]
    assert row.startswith("loud ")
    assert heading.index("BEAM") == row.index("4")
    assert rows[0]["name"] == "loud"
    assert rows[0]["default_options"]["beam_size"] == 4


def test_serve_check_config_shows_flags_settings_and_environment(tmp_path):
    (tmp_path / "dragoman.toml").write_text("[limits]\nmax_texts = 3\nmax_characters = 5\n")
    arguments = ["--config", str(tmp_path / "dragoman.toml"), "--port", "0", "--set", "limits.max_characters=7"]

    result = run("serve", "--check-config", *arguments, env={"DRAGOMAN_LIFECYCLE__GRACE_S": "4"})

    settings = json.loads(result.stdout)
    assert settings["listen"]["grpc_port"] == 0
    assert (settings["limits"]["max_texts"], settings["limits"]["max_characters"]) == (3, 7)
    assert settings["lifecycle"]["grace_s"] == 4.0


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


def test_check_config_looks_at_the_model_too():
    result = run("serve", "--check-config", "--bundle", "no-such-bundle")

    assert result.exit_code == 2
    assert "no-such-bundle is not a bundle" in result.stderr


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

    monkeypatch.setattr("service.front.server.serve", refuse)

    assert run("serve").exit_code == 1


async def test_serve_demo_translates_one_text_and_prints_both(server, monkeypatch):
    async def serve_until_printed(_: object) -> int:
        (demo,) = (thread for thread in threading.enumerate() if thread.name == "demo")
        await asyncio.to_thread(demo.join)
        return 0

    monkeypatch.setattr("service.front.server.serve", serve_until_printed)
    result = await asyncio.to_thread(run, "serve", "--port", server.address.split(":")[1], "--demo", "good day")

    assert result.exit_code == 0
    assert "  good day\n  GOOD DAY\n" in result.stdout


def test_serve_demo_ends_quietly_when_the_server_never_starts(monkeypatch):
    async def refuse(_: object) -> int:
        return 1

    monkeypatch.setattr("service.front.server.serve", refuse)
    result = run("serve", "--port", "1", "--demo", "good day")

    assert result.exit_code == 1
    assert "Traceback" not in result.output


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


def test_version_names_the_program_and_its_runtime():
    lines = run("version").stdout.splitlines()

    assert lines[0].startswith("dragoman 0.")
    assert any(line.startswith("grpcio ") for line in lines)


def help_defaults(command: str) -> dict[str, str]:
    """What the help of a command says after "default:", by flag."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    options = [option for option in group.commands[command].params if isinstance(option, typer.core.TyperOption)]
    said = [(option.opts[0], re.search(r"\[default: (.*)\]", option.help or "")) for option in options]
    return {flag: match[1] for flag, match in said if match}


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


def test_serve_is_not_ended_by_a_wish_to_reload_that_comes_too_early():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        run("serve", "--print-config")

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_client_and_server_meet_by_default():
    listen = ListenConfig()

    assert f"{listen.grpc_host}:{listen.grpc_port}" == DEFAULT_ADDRESS
    assert help_defaults("translate")["--server"].endswith(f"else {DEFAULT_ADDRESS}")


@pytest.mark.parametrize(
    "command", ["serve", "translate", "models", "status", "reload", "log-level", "doctor", "version"]
)
def test_every_command_explains_itself(command):
    result = run(command, "--help")

    assert result.exit_code == 0
    assert f"dragoman {command}" in result.stdout.replace("root", "dragoman")


def test_help_loads_no_runtime():
    heavy = ("numpy", "onnxruntime", "grpc", "google.protobuf", "sentencepiece", "pydantic_settings", "torch")
    code = f"import sys, service.commands.cli; sys.exit(' '.join(n for n in {heavy!r} if n in sys.modules) or None)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_exit_codes_are_documented():
    for code in (cli.EXIT_SOME_FAILED, cli.EXIT_USAGE, cli.EXIT_NO_ANSWER, cli.EXIT_INTERRUPTED):
        assert f"\n    {code} " in (cli.__doc__ or "")
