"""Which texts are capitals only, how a model reads them, and how they come back."""

import pytest

from service.text.normalization import begun_as_in_source, go_on, is_capitals, raise_case, recase

KNOWN = {"Katzen", "Garten", "USA", "NASA", "London", "Wien"}  # by the tokenizer, besides all words in lower case


def count_tokens(word: str) -> int:
    if word in KNOWN or (word.islower() and word.title() not in KNOWN and word.upper() not in KNOWN):
        return 1
    return 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("THE CATS ARE SLEEPING", True),
        ("WARNING", True),
        ("NASA", True),
        ("3 FILES, 5 MB", True),
        ("ПРИВЕТ", True),
        ("VISIT https://example.com NOW, PLEASE", False),
        ("The cats are sleeping", False),
        ("LED TV", False),
        ("I", False),
        ("", False),
        ("42", False),
        ("A1B2C3D4", False),  # a code
        ("NASA報告書を読む", False),
        ("東京", False),
    ],
)
def test_capitals_only_is_told_from_names_and_codes(text, expected):
    assert is_capitals(text) is expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("THE CATS ARE SLEEPING.", "en", "The cats are sleeping."),
        ("DIE KATZEN SCHLAFEN IM GARTEN", "de", "Die Katzen schlafen im Garten"),
        ("LONDON AND THE USA", "en", "London and the USA"),
        ("I DON'T KNOW, I THINK", "en-GB", "I don't know, I think"),
        ("MAX_SIZE OF C4 IS 3D", "en", "MAX_SIZE of C4 is 3D"),
        ("«ÜBER ALLE BERGE»", "de", "«Über alle berge»"),
        ("ПРИВЕТ МИР", "ru", "Привет мир"),
        ("ISPARTA ILIK", "tr", "Isparta \u0131l\u0131k"),
        ("\u0130\u0130\u0130 GO", "en", "\u0130\u0130\u0130 go"),  # two code points in lower case: it stays
    ],
)
def test_a_text_in_capitals_becomes_a_sentence(text, language, expected):
    assert recase(text, count_tokens, language=language) == expected


@pytest.mark.parametrize(
    ("text", "language", "kept", "expected"),
    [
        ("Die Katzen schlafen auf der Straße.", "de", (), "DIE KATZEN SCHLAFEN AUF DER STRASSE."),
        ("Lösche {name} aus %s und %d", "de", ("%s", "{name}", "%d"), "LÖSCHE {name} AUS %s UND %d"),
        ("iki", "tr", (), "\u0130K\u0130"),
        ("a ab b", "", ("a", "ab"), "a ab B"),  # the longer one first
        ("", "de", (), ""),
    ],
)
def test_a_translation_is_raised_but_for_what_is_kept(text, language, kept, expected):
    assert raise_case(text, language=language, kept=kept) == expected


@pytest.mark.parametrize(
    ("source", "target", "language", "expected"),
    [
        ("and she left", "Und sie ging.", "de", "und sie ging"),
        ("and she left.", "Und sie ging.", "de", "und sie ging."),
        ("the gardens", "Garten", "de", "Garten"),  # its tokenizer knows it with a capital
        ("you see him,", "Sie sehen ihn,", "de", "Sie sehen ihn,"),
        ("weil ich ihn sah", "I saw him", "en", "I saw him"),
        ("because of it", "USA-weit", "de", "USA-weit"),  # no word of a sentence's beginning
        ("She left", "Sie ging", "fr", "Sie ging"),
        ("and then", "... und dann", "de", "... und dann"),
        ("and then", "...", "de", "..."),
        ("and then", "", "de", ""),
        ("", "Und", "de", "Und"),
        ("ve \u0131l\u0131k", "Il\u0131k", "tr", "\u0131l\u0131k"),
    ],
)
def test_a_piece_goes_on_with_its_sentence(source, target, language, expected):
    assert go_on(source, target, count_tokens, language=language) == expected


@pytest.mark.parametrize(
    ("source", "target", "languages", "expected"),
    [
        ("First open the door.", "öffne zuerst die Tür.", ("en", "de"), "Öffne zuerst die Tür."),
        ("\u201eWer ist da?\u201c fragte er.", "\u201cwho is there?\u201d", ("de", "en"), "\u201cWho is there?\u201d"),
        ("Open", "öffnen", ("en", "de"), "Öffnen"),
        ("open it", "öffne es", ("en", "de"), "öffne es"),
        ("Der Hund", "the dog", ("de", "en"), "the dog"),  # a noun, a table's cell
        ("The iPhone is here.", "iPhone ist da.", ("en", "de"), "iPhone ist da."),
        ("For example, it rains.", "z.B. regnet es.", ("en", "de"), "z.B. regnet es."),
        ("Straße und Haus.", "ßtreet and house.", ("de", "en"), "ßtreet and house."),
        ("Izmir is big.", "izmir büyük.", ("en", "tr"), "\u0130zmir büyük."),
        ("The cat.", "猫。", ("en", "ja"), "猫。"),
    ],
)
def test_a_translation_begins_with_a_capital_where_its_source_does(source, target, languages, expected):
    assert begun_as_in_source(source, target, languages=languages) == expected
