"""Runs of punctuation: what the model gets, and what a translation has in the end."""

import re

import pytest

from service.records import Link, Span
from service.text.normalization import as_in_source, eased


@pytest.mark.parametrize(
    ("source", "shown", "target", "expected"),
    [
        ("Save As...", "Save As", "Speichern unter.", "Speichern unter..."),
        ("Wait…", "Wait", "Warte", "Warte…"),
        ("Buy now!!!", "Buy now!", "Kauf jetzt.", "Kauf jetzt!!!"),
        ("What?!", "What?", "Was ?", "Was?!"),
        ("You did what??", "You did what?", "Was hast du getan?", "Was hast du getan??"),
        ("But I thought--", "But I thought", "Aber ich dachte -", "Aber ich dachte--"),
        ("-- the end --", "-- the end", "-- das Ende.", "-- das Ende --"),
        ('He said "What?!"', 'He said "What?!"', "Er sagte „Was?“", "Er sagte „Was?!“"),
        ("The end.", "The end.", "Das Ende!", "Das Ende!"),
        ("Really?", "Really?", "Wirklich", "Wirklich"),
        ("...", "...", "...", "..."),
        ("The cat -- the dog", "The cat – the dog", "Die Katze – der Hund", "Die Katze -- der Hund"),
        ("One -- two – three", "One -- two – three", "Eins – zwei – drei", "Eins – zwei – drei"),
        ("Use --force now", "Use --force now", "Nimm --force", "Nimm --force"),
        ("Go -- now!!", "Go – now!", "Geh – jetzt!", "Geh -- jetzt!!"),
    ],
)
def test_runs_and_dashes_are_eased_for_the_model_and_come_back_as_they_were(source, shown, target, expected):
    assert (eased(source), as_in_source(source, target, ())[0]) == (shown, expected)


def test_dashes_stay_beside_spans_and_tags_and_places_are_known_elsewhere():
    assert eased("Go -- {now}", [Span(6, 11)]) == "Go -- {now}"
    assert eased("Go -- now", has_tags=True) == "Go -- now"

    text, (link,) = as_in_source("One -- two -- three", "Eins – zwei – drei", [Link(Span(12, 17), Span(14, 18))])

    assert text == "Eins -- zwei -- drei"
    assert "One -- two -- three"[slice(*link.source)] == "three"
    assert text[slice(*link.target)] == "drei"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("ISBN 978-3, IBAN DE89; ok", "ISBN 978-3,IBAN DE89;gut", "ISBN 978-3, IBAN DE89; gut"),
        ("They won 21-19; odds 5:1.", "Sie gewannen 21-19;Quote 5:1.", "Sie gewannen 21-19; Quote 5:1."),
        ("Es kostet 12, sagt er.", "It is 12,he says.", "It is 12, he says."),
        ("See A-1,b and A-1, too", "Siehe A-1,b und A-1, auch", "Siehe A-1, b und A-1, auch"),
        ("12,b", "12,b", "12,b"),
        ("In 5, 6 or 7", "In 5,6 oder 7", "In 5,6 oder 7"),
    ],
)
def test_word_stands_apart_from_a_mark_behind_a_span_or_a_number_as_in_the_source(source, target, expected):
    spans = [Span(match.start(), match.end()) for match in re.finditer(r"978-3|DE89|A-1", source)]

    assert as_in_source(source, target, (), spans)[0] == expected
