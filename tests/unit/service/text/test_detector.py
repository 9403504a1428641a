"""In which language short and odd texts are; none of these needs to be long."""

import pytest
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from service.records import DetectedLanguage
from service.text.detector import NO_LANGUAGE, Detector, script_of

ENGLISH = (
    "Good morning|Thank you|Where is the station?|The cat sleeps.|I love you|See you tomorrow|Please close the door|"
    "How much is it?|What time is it?|Yes, of course|No entry|Happy birthday|It is raining|Call me later|"
    "Nice weather today|Open the file|Save changes|Delete account|Sign in|THE CATS ARE SLEEPING"
)
GERMAN = (
    "Guten Morgen|Danke schön|Wo ist der Bahnhof?|Die Katze schläft.|Ich liebe dich|Bis morgen|"
    "Bitte die Tür schließen|Wie viel kostet das?|Wie spät ist es?|Ja, natürlich|Kein Eintritt|"
    "Alles Gute zum Geburtstag|Es regnet|Ruf mich später an|Schönes Wetter heute|Datei öffnen|Änderungen speichern|"
    "Konto löschen|Anmelden|DIE KATZEN SCHLAFEN"
)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


@pytest.fixture(scope="module")
def normalising() -> LanguageIdentifier:
    """py3langid itself, for three languages."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(["de", "en", "es"])
    return identifier


@pytest.mark.parametrize(
    ("text", "language"),
    [(text, language) for texts, language in ((ENGLISH, "en"), (GERMAN, "de")) for text in texts.split("|")],
)
def test_short_text_is_told_apart(detector, text, language):
    found = detector.detect(text, ["en", "de"])

    assert found.language == language
    assert 0.5 < found.confidence <= 1.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " \n",
            "42",
            "3.14 %",
            "1,299.99",
            "---",
            "😀❤️",
            "https://www.example.com/the/path",
            "www.example.com/das",
        ),
        *("anna.mueller@example.org", "{name}", "${count}", "%s %(folder)s", '<br class="the end"/>', "&nbsp;"),
        "OK",  # too little to tell
        *("Привет, мир", "你好"),  # no language on offer is written so
    ],
)
def test_what_is_no_language_has_none(detector, text):
    assert detector.detect(text, ["en", "de"]) == NO_LANGUAGE


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Привет", "ru"),
        ("Καλημέρα", "el"),
        ("東京です", "ja"),
        ("서울", "ko"),
        ("你好", "zh-Hans"),
        ("שלום", "he"),
        ("مرحبا", "ar"),
        ("नमस्ते", "hi"),
        ("OK", "en-GB"),
    ],
)
def test_script_decides_alone(text, language):
    detector = Detector()
    languages = ["en-GB", "ru", "el", "ja", "ko", "zh-Hans", "he", "ar", "hi"]
    if language != "zh-Hans":  # whose letters Japanese and Korean have as well
        detector.load = None  # type: ignore[assignment, method-assign]

    found = detector.detect(text, languages)

    assert found.language == language
    assert found.confidence == pytest.approx(1.0, abs=0.05)


def test_confidence_is_the_share_of_the_letters_where_the_script_decides(detector):
    assert detector.detect("Привет, Tom", ["en", "ru"]) == DetectedLanguage("ru", 6 / 9)


@pytest.mark.parametrize("text", ["Hotel", "Die Katze schläft.", "The cat sleeps. " * 40, "Información"])
def test_confidence_is_the_probability_as_py3langid_normalises_it(detector, normalising, text):
    language, confidence = normalising.classify(text.strip())

    found = detector.detect(text, ["en", "de", "es"])

    assert found == (language, pytest.approx(confidence, rel=1e-3))


def test_markup_is_no_language(detector):
    page = "<!doctype html>" + '<p title="what is in the tags does not count">Ja, <b>natürlich</b></p>' * 3

    assert detector.detect(page, ["en", "de"]).language == "de"


def test_answer_is_the_tag_that_was_asked_for(detector):
    assert detector.detect("Guten Morgen", ["en_US", "de-AT"]).language == "de-AT"
    assert detector.detect("God morgen, alle sammen", ["nb", "en"]).language == "nb"


def test_language_that_nobody_knows_is_never_the_answer(detector):
    assert detector.detect("Guten Morgen", ["a", "de", "b"]) == DetectedLanguage("de", 1.0)
    assert detector.detect("Guten Morgen", ["a", "b"]) == NO_LANGUAGE


def test_a_single_language_needs_no_model():
    detector = Detector()
    detector.load = None  # type: ignore[assignment, method-assign]

    assert detector.detect("anything", ["en"]) == DetectedLanguage("en", 1.0)
    assert detector.detect("17", ["en"]) == NO_LANGUAGE


@pytest.mark.parametrize(
    ("languages", "needed"),
    [(["en"], False), (["en", "ru"], False), (["en", "de"], True), (["ja", "zh"], True), ([], False)],
)
def test_model_is_needed_where_two_languages_share_letters(languages, needed):
    assert Detector().needs_model(languages) is needed


def test_model_that_is_loaded_is_not_needed_again(detector):
    detector.load()

    assert not detector.needs_model(["en", "de"])


@pytest.mark.parametrize(
    "text", ["\ud800 lone", "a@" * 9_000, "<" * 9_000, "&" * 9_000, "%(" * 9_000, "\x00", "ﷺ" * 50]
)
def test_odd_text_is_no_error(detector, text):
    detector.detect(text, ["en", "de", "ar"])


@pytest.mark.parametrize(
    ("language", "script"), [("en", "Latn"), ("zh-TW", "Hant"), ("zh", "Hans"), ("sr", "Cyrl"), ("sr-Latn", "Latn")]
)
def test_script_of_a_language(language, script):
    assert script_of(language) == script
