"""Signs that are read as words, and marks of keys that are not read at all."""

import pytest

from service.records import Span
from service.text.abbreviations import read
from service.text.protected_spans import Alphabet, find_spans

KNOWN = frozenset(map(chr, range(32, 127))) - set("&_{}<>") | set("äöüßÄÖÜ…")
ALPHABET = Alphabet(lambda character: character if character in KNOWN else None)


def found(text: str, languages: tuple[str, str] = ("en", "de")):
    return read(text, find_spans(text, ALPHABET), *languages)


@pytest.mark.parametrize(
    ("text", "languages", "is_read_as", "target", "is_written_as"),
    [
        ("Bread & butter", ("en", "de"), "Bread and butter", "Brot und Butter", "Brot & Butter"),
        ("Search && find", ("en", "de"), "Search and find", "Suchen und finden", "Suchen && finden"),
        ("Kaffee & Kuchen", ("de", "en"), "Kaffee und Kuchen", "Coffee and cake", "Coffee & cake"),
        ("Alt & neu, hier und dort", ("de-AT", "en-US"), "Alt und neu, hier und dort", "Old and new, here and there",
         "Old & new, here and there"),
        ("cats and dogs & birds", ("en", "de"), "cats and dogs and birds", "Katzen und Hunde und Vögel",
         "Katzen und Hunde & Vögel"),
        ("Rock & roll & more", ("en", "de"), "Rock and roll and more", "Rock and Roll und mehr", "Rock & Roll & mehr"),
        ("Rot & blau", ("de", "fr"), "Rot und blau", "Rouge et bleu", "Rouge & bleu"),
    ],
)  # fmt: skip
def test_a_sign_between_words_is_read_as_and_and_written_back(text, languages, is_read_as, target, is_written_as):
    one = found(text, languages)

    assert one.text == is_read_as
    assert one.written(target).text == is_written_as


@pytest.mark.parametrize(
    ("text", "is_read_as", "target", "is_written_as"),
    [
        ("&Edit", "Edit", "Bearbeiten", "&Bearbeiten"),
        ("Save &all files", "Save all files", "Alle Dateien sichern", "&Alle Dateien sichern"),
        ("Cl&ose", "Close", "Schließen", "&Schließen"),
        ("In&fo", "Info", "Info", "&Info"),
        ("St&art", "Start", "Starten", "&Starten"),
        ("_Print", "Print", "Drucken", "_Drucken"),
        ("Show _page…", "Show page…", "Seite anzeigen…", "Seite _anzeigen…"),
        ("_New _Window", "New Window", "Neues Fenster", "_Neues _Fenster"),
        ("Open {name} &now", "Open {name} now", "Nun {name} öffnen", "&Nun {name} öffnen"),
        ("&A &B &C", "A B C", "AB", "&A&B"),
    ],
)
def test_the_mark_of_a_key_is_not_read_and_stands_before_a_letter_of_the_translation(
    text, is_read_as, target, is_written_as
):
    one = found(text)

    assert one.text == is_read_as
    assert getattr(one.written(target), "text", is_written_as) == is_written_as


@pytest.mark.parametrize(
    "text",
    [
        "AT&T has a shop",
        "R & D is expensive",
        "Q&A",
        "rock&roll",
        "drag&drop",
        "https://example.org/?a=1&b=2",
        "a &amp; b and &nbsp;",
        "The _variable is not here and nobody knows why it is so",
        "This is _really important_ here",
        "snake_case and __init__",
        "_private",
        "See _foo(x)",
        "x&y",
    ],
)
def test_what_only_looks_like_a_sign_for_a_word_or_a_key_stays(text):
    assert found(text) is None


@pytest.mark.parametrize("target", ["Brot, Butter", "", "Brotund Butter"])
def test_a_translation_without_a_place_for_the_sign_is_refused(target):
    assert found("Bread & butter").written(target) is None


def test_places_move_with_the_signs():
    one = found("Open doors & old &files")

    done = one.written("Türen und alte Dateien öffnen")

    assert done.text == "Türen & alte Dateien &öffnen"
    assert done.text[slice(*done.moved(Span(10, 14)))] == "alte"
    assert done.text[slice(*done.moved(Span(23, 29)))] == "&öffnen"
    assert one.text == "Open doors and old files"
    assert "Open doors & old &files"[slice(*one.origin(Span(19, 24)))] == "files"


@pytest.mark.parametrize(
    ("text", "language", "is_read_as"),
    [
        ("Es sind ca. 5 Mio. Euro.", "de", "Es sind etwa 5 Millionen Euro."),
        ("Z. B. heute, z.B. hier", "de", "Zum Beispiel heute, zum Beispiel hier"),
        ("Das gilt i. d. R. nicht (ggf. doch)", "de-CH", "Das gilt in der Regel nicht (eventuell doch)"),
        ("Mind. 3 Std. und 10 Min. lang", "de", "Mindestens 3 Stunden und 10 Minuten lang"),
        ("Siehe S. 5 und Abb. 3 von S. Meier", "de", "Siehe Seite 5 und Abbildung 3 von S. Meier"),
        (
            "Vgl. Bd. 3, d. h. tgl. für 4 Pers. lt. Plan",
            "de",
            "Vergleiche Band 3, das heißt täglich für 4 Personen laut Plan",
        ),
        ("Er zahlt 20,- € bzw. 1.200,– mtl. brutto.", "de", "Er zahlt 20 € bzw. 1.200 monatlich brutto."),
        ("Nach § 5 Abs. 3 S. 2 gilt auf S. 2 das.", "de", "Nach § 5 Abs. 3 S. 2 gilt auf Seite 2 das."),
        ("See cf. Civ. P. 12, p. 12", "en", "See compare Civ. P. 12, page 12"),
        ("Fruit, e.g. apples, on pp. 5 to 9", "en", "Fruit, for example apples, on pages 5 to 9"),
        ("Approx. 5 men in sec. 4", "en-US", "Approximately 5 men in section 4"),
    ],
)
def test_an_abbreviation_is_read_in_full(text, language, is_read_as):
    one = read(text, (), language, "de" if language.startswith("en") else "en")

    assert one is not None
    written = one.written("Text")
    assert (one.text, written and written.text) == (is_read_as, "Text")


@pytest.mark.parametrize("text", ["Wir kommen um 5 usw.", "Er heißt Max. Sie auch", "5 min", "Das ist ca.", "a.e.g. x"])
def test_what_only_looks_like_an_abbreviation_is_read_as_it_is(text):
    assert read(text, (), "de", "en") is None
