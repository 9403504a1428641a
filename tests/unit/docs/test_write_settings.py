"""docs/configuration.md says what service/config.py and `dragoman serve` define."""

import re
from pathlib import Path

import pytest

from docs.write.settings import page, settings
from service.config import setting_sources

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
SETTINGS = {setting.dotted: setting for setting in settings()}


@pytest.mark.skipif(not DOCUMENT.exists(), reason="not a checkout: the documents are not installed")
def test_the_document_is_what_the_code_defines():
    assert DOCUMENT.read_text(encoding="utf-8") == page(), "run: python -m docs.write.settings > docs/configuration.md"


def test_every_setting_is_there_once_and_has_a_meaning():
    assert list(SETTINGS) == list(setting_sources())
    assert [name for name, setting in SETTINGS.items() if not setting.meaning] == []


def test_every_variable_reaches_its_setting(monkeypatch):
    plain = {name: row for name, row in SETTINGS.items() if re.fullmatch(r"[\d.]+|true|false", row.default)}
    for row in plain.values():
        monkeypatch.setenv(row.variable, row.default)

    sources = setting_sources()

    assert {name: sources[name] for name in plain} == {
        name: f"environment {row.variable}" for name, row in plain.items()
    }
