"""What texts whose language nobody names are taken for: one to translate, or one that needs or gets no translation."""

import pytest

from service.text.languages import NO_LANGUAGE, Detector, judge

ENGLISH = (
    "The bus is late again and we are still waiting at the station.|Please send me the bill by Friday.|"
    "The library opens at nine.|Our neighbours have three dogs and a very old cat.|What did you think of the film?"
)
GERMAN = (
    "Der Bus ist schon wieder zu spät, und wir warten noch am Bahnhof.|Bitte schicken Sie mir die Rechnung.|"
    "Die Bücherei öffnet um neun.|Unsere Nachbarn haben drei Hunde und eine sehr alte Katze.|Wie fandest du den Film?"
)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        *((text, "de", "en") for text in ENGLISH.split("|")),
        *((text, "en", "de") for text in GERMAN.split("|")),
        ("Сегодня хорошая погода.", "en", "ru"),
        ("Je cherche la gare et je suis en retard.", "en", "fr"),
    ],
)
def test_text_in_the_target_language_stays(detector, text, source, target):
    judged = judge(text, [source], target, detector)

    assert (judged.stays, judged.found.language) == (True, target)
    assert judged.found.confidence >= 0.95


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        *((text, "en", "de") for text in ENGLISH.split("|")),
        *((text, "de", "en") for text in GERMAN.split("|")),
        ("Hallo!", "de", "en"),
        ("Good morning", "en", "de"),
    ],
)
def test_text_in_a_source_language_is_translated(detector, text, source, target):
    judged = judge(text, [source], target, detector)

    assert (judged.stays, judged.source, judged.found.language) == (False, source, source)
    assert 0.0 < judged.found.confidence <= 1.0


@pytest.mark.parametrize("text", ["Hotel", "Hallo", "Taxi", "Anna Schmidt", "Ciao!", "Berlin", "Restaurant", "Max"])
@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en")])
def test_text_that_cannot_be_told_is_translated_with_what_was_measured_of_its_source(detector, text, source, target):
    judged = judge(text, [source], target, detector)

    assert (judged.stays, judged.found.language) == (False, source)
    assert judged.found.confidence < 1.0


@pytest.mark.parametrize("text", ["OK", "Hand", "42", "3 %", "https://example.org", "{name}", "", "😀"])
def test_nothing_is_said_where_nothing_was_measured(detector, text):
    assert judge(text, ["en"], "de", detector) == (NO_LANGUAGE, "", False)


@pytest.mark.parametrize(
    ("text", "language"),
    [("Le chat dort sur le canapé.", "fr"), ("Il treno è in ritardo di nuovo.", "it"), ("Кот спит в саду.", "ru")],
)
def test_text_in_no_language_of_a_model_stays(detector, text, language):
    for target in ("de", ""):
        judged = judge(text, ["en"] if target else ["en", "de"], target, detector)

        assert (judged.stays, judged.found.language) == (True, language)
        assert judged.found.confidence < 1.0


def test_text_of_which_a_part_is_in_a_source_language_is_translated(detector):
    ours = " ".join(ENGLISH.split("|"))
    theirs = " ".join(GERMAN.split("|"))

    judged = judge(f"{ours}\n\n{ours}\n\n> {theirs}", ["de"], "en", detector)

    assert (judged.stays, judged.source, judged.found.language) == (False, "de", "de")
    assert judge(f"{ours}\n\n{ours}", ["de"], "en", detector).stays
