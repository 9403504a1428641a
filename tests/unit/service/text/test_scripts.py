"""The scripts of languages, and letters of other ones."""

import pytest

from service.text.scripts import foreign_runs, letters, scripts_of


@pytest.mark.parametrize(
    ("language", "scripts"),
    [
        ("de", ("Latn",)),
        ("de-AT", ("Latn",)),
        ("RU", ("Cyrl",)),
        ("sr", ()),  # both are usual
        ("sr-Latn-RS", ("Latn",)),
        ("zho_Hans", ("Hani",)),
        ("zh-Hant-TW", ("Hani",)),
        ("ja", ("Hani", "Kana")),
        ("ko", ("Hang", "Hani")),
        ("xx", ()),
        ("", ()),
        ("xx-Abcd", ()),
    ],
)
def test_a_language_has_its_scripts_by_table_or_by_subtag(language, scripts):
    assert scripts_of(language) == scripts


@pytest.mark.parametrize(
    ("text", "language", "runs"),
    [
        ("Ein Wort: привет, 12 мир", "de", ["привет", "мир"]),
        ("Ångström, ﬁn, Łódź, Việt", "de", []),
        ("私は Linux を使う", "ja", ["Linux"]),
        ("नमस्ते दुनिया", "hi", []),
        ("สวัสดีชาวโลก", "th", []),
        ("anything", "xx", []),
        ("5 + 5 = 10!", "ru", []),
    ],
)
def test_letters_of_other_scripts_are_found_together(text, language, runs):
    assert foreign_runs(text, language) == runs


def test_letters_are_those_of_any_script():
    assert letters("a1_Ж.漢") == ["a", "Ж", "漢"]
