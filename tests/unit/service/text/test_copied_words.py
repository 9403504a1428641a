"""Codes, letters and names that a translation lacks, and those that it says in another way."""

import pytest

from service.text.copied_words import damaged_codes, lost_codes


@pytest.mark.parametrize(
    ("source", "target", "languages", "lost"),
    [
        ("I love NY.", "Ich liebe es.", "en-de", ["NY"]),
        ("Point A lies left of point B.", "Punkt Ein liegt links von Punkt B.", "en-de", ["A"]),
        ("Let n be an integer.", "Es sei eine ganze Zahl.", "en-de", ["n"]),
        ("The eBay offer", "Das Ebay-Angebot", "en-de", ["eBay"]),
        ("William I was crowned.", "William Ich wurde gekrönt.", "en-de", ["I"]),
        ("Yesterday I saw it, and so did I.", "Gestern habe ich es gesehen.", "en-de", []),
        ("Louis XIV built it.", "Ludwig der 14. baute es.", "en-de", []),
        ("It was World War II.", "Es war der Zweite Weltkrieg.", "en-de", []),
        ("Karl V. war dort, z. B. in U-Bahnen, i. d. R. um 5 h.", "Charles was there.", "de-en", ["V"]),
        ("All PDFs about AIDS are OK on TV.", "Alle PDF-Dateien über Aids sind im Fernsehen.", "en-de", []),
        ("He lives in the U.S. and eats e.g. 3 g of it, file(s).", "Er lebt dort.", "en-de", []),
        ("J. R. R. Tolkien wrote it.", "J. R. Tolkien schrieb es.", "en-de", ["R", "R"]),
        ("He has, z. B. Wein, U. S. Wein and 5 km2 of land.", "Er hat Land.", "en-de", []),
        ("From e2 to a6 on sda1", "Von e2 nach ein6 auf sda1", "en-de", ["a6"]),
        ("(a) tea, (b) coffee for the person(s)", "(b) Tee (b) Kaffee", "en-de", ["(a)"]),
        ("Section 2(b)(iii), vol. xii, part iv", "Abschnitt 2(b)(ii), Band xi, Teil iv", "en-de", ["(iii)", "xii"]),
        ("Es sind 21 °C.", "It is 21 degrees.", "de-en", []),
        ("THE CATS IN NY", "DIE KATZEN", "en-de", []),
    ],
)
def test_codes_that_a_translation_lacks_are_lost(source, target, languages, lost):
    assert [code.text for code in lost_codes(source, target, *languages.split("-"))] == lost


@pytest.mark.parametrize(
    ("source", "target", "damaged"),
    [
        ("The office in Bonn", "Das Büro in Bonnn", ["Bonn"]),
        ("Ask Mr O'Neill.", "Fragen Sie Herrn O'Neil.", ["O'Neill"]),
        ("Our code is DEUTDEFF.", "Unser Code ist DEUTDEF.", ["DEUTDEFF"]),
        ("He (the old man) left.", "Er (der alte Mann ging.", ["(", ")"]),
        ("The file(s) (and more)", "Die Dateien (und mehr)", []),
        ("We are in Africa and Rome.", "Wir sind in Afrika und Rom.", []),
        ("The UK is there.", "Großbritannien ist dort.", []),
        ("The old Harbour", "Der alte HARBOUR", []),
    ],
)
def test_a_name_whose_letters_are_repeated_otherwise_is_damaged(source, target, damaged):
    assert [code.text for code in damaged_codes(source, target, "en", "de")] == damaged
