"""The server's named glossaries: what their files may say, and what a change of them does."""

import re

import pytest

from service.config import ConfigError
from service.errors import NotFound
from service.records import Term
from service.translate.glossaries import Glossaries, read_glossary
from tests.fakes.clock import Clock
from tests.fakes.logs import log

__all__ = ["log"]

PERIOD_S = 5.0


def terms(glossaries: Glossaries, name: str, text: str) -> list[Term]:
    return [use.term for use in glossaries.find(name).find(text)]


def test_a_file_is_a_glossary_of_its_name(tmp_path):
    (tmp_path / "cars.tsv").write_bytes("\ufeffgear\tGang\r\n\r\nAcme\nfuel cell \t Brennstoffzelle".encode())
    (tmp_path / "notes.txt").write_text("no\tglossary\tat all")

    glossaries = Glossaries(tmp_path, period_s=PERIOD_S)

    expected = [Term("gear", "Gang"), Term("Acme"), Term("fuel cell", "Brennstoffzelle")]
    assert terms(glossaries, "cars", "gear Acme fuel cell") == expected


def test_a_glossary_that_is_not_there_is_named_with_those_that_are(tmp_path):
    (tmp_path / "cars.tsv").write_text("a\tb\n")
    (tmp_path / "books.tsv").write_text("a\tb\n")

    with pytest.raises(NotFound, match=r"there is no glossary 'films'; the server has: books, cars"):
        Glossaries(tmp_path, period_s=PERIOD_S).find("films")
    with pytest.raises(NotFound, match=r"the server has: none"):
        Glossaries(None, period_s=PERIOD_S).find("cars")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\n\tc\n", "line 2: nothing stands before the tab"),
        (b"a\tb\tc\n", "line 1: has 3 fields, a term has 2"),
        (b"a\tb\na\tc\n", "line 2: 'a' is 'b' in an earlier line"),
        (b"a\tb\n\n\xff\tc\n", "line 3: 'utf-8' codec"),
    ],
)
def test_a_line_that_is_no_term_is_named(content, message, tmp_path):
    file = tmp_path / "cars.tsv"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=re.escape(f"glossary {file}, {message}")):
        Glossaries(tmp_path, period_s=PERIOD_S)


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"models.glossaries is .*/none, which cannot be read: No such file"):
        Glossaries(tmp_path / "none", period_s=PERIOD_S)
    with pytest.raises(ConfigError, match=r"glossary .*/none.tsv cannot be read: No such file"):
        read_glossary(tmp_path / "none.tsv")


def test_changed_files_are_read_again_and_broken_ones_keep_what_there_was(tmp_path, log):
    clock = Clock()
    file = tmp_path / "cars.tsv"
    file.write_text("gear\tGang\n")
    glossaries = Glossaries(tmp_path, period_s=PERIOD_S, clock=clock)

    file.write_text("gear\tGetriebe\n")
    (tmp_path / "new.tsv").write_text("a\tb\n")
    clock.now = 5.0
    assert terms(glossaries, "cars", "gear") == [Term("gear", "Getriebe")]
    assert terms(glossaries, "new", "a") == [Term("a", "b")]

    file.write_text("gear\tGang\tzu viel\n")
    clock.now = 10.0
    assert terms(glossaries, "cars", "gear") == [Term("gear", "Getriebe")]
    assert "line 1: has 3 fields" in log.getvalue()
