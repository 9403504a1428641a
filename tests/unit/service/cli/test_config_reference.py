"""docs/configuration.md says what service/config.py and `dragoman serve` define."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.app import app
from service.cli.config_reference import Setting, page, settings
from service.config import setting_sources

DOCUMENT = Path(__file__).parents[4] / "docs" / "configuration.md"
SETTINGS = list(settings())
# A good value for each flag that does not take a number.
VALUES = {
    "--precision": "fp32",
    "--bundle": "default",
    "--log-level": "debug",
    "--log-format": "json",
}
PORTS = ["--port", "--http-port", "--admin-port"]


def given(flag: str, setting: Setting) -> list[str]:
    if setting.values.startswith("true"):
        return [flag.rsplit("/", maxsplit=1)[-1]]
    return [flag, "0" if flag in PORTS else VALUES.get(flag, "3")]


@pytest.mark.skipif(not DOCUMENT.exists(), reason="not a checkout: the documents are not installed")
def test_the_document_is_what_the_code_defines():
    assert DOCUMENT.read_text(encoding="utf-8") == page(), (
        "run: python -m service.cli.config_reference > docs/configuration.md"
    )


def test_every_setting_is_there_once_and_has_a_meaning():
    names = [setting.dotted for setting in SETTINGS]

    assert names == list(setting_sources())
    assert [setting.dotted for setting in SETTINGS if not setting.meaning] == []


def test_every_flag_sets_the_setting_it_stands_beside():
    flags = {setting.flag: setting for setting in SETTINGS if setting.flag}
    arguments = [argument for flag, setting in flags.items() for argument in given(flag, setting)]

    printed = CliRunner().invoke(app, ["serve", *arguments, "--print-config"])

    assert printed.exit_code == 0, printed.output
    set_by_flag = set()
    for line in printed.output.splitlines():
        if table := re.fullmatch(r"\[(\w+)\]", line):
            group = table[1]
        elif line.endswith("# flag"):
            set_by_flag.add(f"{group}.{line.split(' = ')[0]}")
    assert set_by_flag == {setting.dotted for setting in flags.values()}
    assert len(flags) > 30


def test_a_switch_that_is_on_has_the_flag_that_switches_it_off():
    flags = {setting.dotted: setting.flag for setting in SETTINGS}

    assert (flags["listen.http"], flags["listen.reflection"]) == ("--http/--no-http", "--reflection/--no-reflection")


def test_a_meaning_begins_with_the_comment_beside_the_setting():
    meanings = {setting.dotted: setting.meaning for setting in SETTINGS}

    assert meanings["limits.max_concurrent_requests"].startswith("Translate calls in flight. Clients that hold less")


def test_the_word_for_never_stands_beside_each_setting_that_takes_it():
    never = {setting.dotted: setting for setting in SETTINGS if setting.values.endswith(", or `never`")}

    assert {name: setting.default for name, setting in never.items()} == {
        "listen.max_connection_age_s": "`never`",
        "limits.brownout_seconds": "`never`",
        "lifecycle.unready_exit_s": "60",
        "telemetry.slow_request_s": "5",
    }
    assert {name for name, setting in never.items() if "`never`: " in setting.meaning} == set(never)


def test_every_variable_reaches_its_setting(monkeypatch):
    plain = [setting for setting in SETTINGS if re.fullmatch(r"[\d.]+|true|false", setting.default)]
    for setting in plain:
        monkeypatch.setenv(setting.variable, setting.default)

    sources = setting_sources()

    assert {setting.dotted: sources[setting.dotted] for setting in plain} == {
        setting.dotted: f"environment {setting.variable}" for setting in plain
    }
