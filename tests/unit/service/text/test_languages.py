"""Scripts of languages, tags that serve for each other, and in which language short and odd texts are."""

import pytest

from service.text.languages import NO_LANGUAGE, Closeness, Detector, closeness, scripts_of

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


@pytest.mark.parametrize(("texts", "language"), [(ENGLISH, "en"), (GERMAN, "de")])
def test_short_text_is_told_apart(detector, texts, language):
    found = {text: detector.detect(text, ["en", "de"]) for text in texts.split("|")}

    assert [text for text, one in found.items() if one.language != language or not 0.5 < one.confidence <= 1.0] == []


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


OTHERS = (
    "fr:Le temps est beau aujourd'hui, nous allons à la plage.|fr:Merci beaucoup pour votre aide|"
    "it:La tua password non è corretta|es:¿Dónde está la parada del autobús?|nl:Het weer is mooi en we gaan fietsen.|"
    "pl:Kot śpi na kanapie, a pies w kuchni.|tr:Kedi bahçede uyuyor, köpek mutfakta.|la:Lorem ipsum dolor sit amet|"
    "sv:Vädret är fint och vi åker till sjön.|fi:Kissa nukkuu sohvalla ja koira keittiössä."
)
FOREIGN_SCRIPTS = (
    "ru:Погода сегодня хорошая.|el:Καλημέρα σε όλους|ja:今日は天気がいいです。|ko:오늘은 날씨가 좋아요.|he:שלום עולם"
)


@pytest.mark.parametrize("told", [*OTHERS.split("|"), *FOREIGN_SCRIPTS.split("|")])
def test_text_is_plainly_in_another_language(detector, told):
    language, text = told.split(":", 1)

    reading = detector.read(text, ["en", "de"])

    assert reading.other is not None
    assert 0.2 < reading.other.confidence <= 1.0
    assert language in {reading.other.language, "sv"}  # which py3langid takes for Danish at times
    assert detector.detect(text, ["en", "de"]) == NO_LANGUAGE


def test_text_that_may_be_in_one_of_the_languages_is_not_plainly_in_another(detector):
    texts = [
        *ENGLISH.split("|"),
        *GERMAN.split("|"),
        *("Ciao!", "Bonjour", "Gracias", "Ω", "Kalinka", "Giovanni Rossi", "Tokyo", "Señor", "S'il vous plaît", "OK"),
        "Haut ass d'Wieder schéin a mir ginn un de Séi.",  # Luxembourgish, whose readers know German
        "Hüt isch s Wätter schön und mir gönd a See.",
        "How far, my broda? Wetin dey happen for market today?",
    ]

    assert [text for text in texts if detector.read(text, ["en", "de"]).other is not None] == []


@pytest.mark.parametrize(
    "page",
    [
        "<script>if (the) { return of && the; }</script><style>.the { of: to }</style><p>Die Katze schläft.</p>",
        "<!-- this is what the editor said about it --> Die Katze <code>git commit with the message</code> schläft",
        "Die Katze schläft im Garten. <script>while (this) { return the.weather + is.nice; }",
    ],
)
def test_scripts_code_and_comments_are_no_language(detector, page):
    assert detector.detect(page, ["en", "de"]).language == "de"


@pytest.mark.parametrize(
    ("language", "scripts"),
    [
        ("de", ("Latn",)),
        ("de-AT", ("Latn",)),
        ("RU", ("Cyrl",)),
        ("sr", ("Cyrl", "Latn")),  # both are usual
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
def test_a_language_has_its_scripts_by_its_tag(language, scripts):
    assert scripts_of(language) == scripts


CASES = [
    ("en", "en", Closeness.EXACT),
    ("EN-us", "en-US", Closeness.EXACT),
    ("en-US", "en", Closeness.GENERAL),
    ("en_us", "en", Closeness.GENERAL),
    ("en-US-u-hc-h12", "en", Closeness.GENERAL),
    ("de-1996", "de", Closeness.GENERAL),
    ("zh-Hant-TW", "zh-Hant", Closeness.GENERAL),
    ("en", "en-US", Closeness.LIKELY),
    ("pt", "pt-BR", Closeness.LIKELY),
    ("zh-TW", "zh-Hant", Closeness.LIKELY),
    ("zh-CN", "zh", Closeness.GENERAL),
    ("zh", "zh-Hans", Closeness.LIKELY),
    ("sr", "sr-Cyrl", Closeness.LIKELY),
    ("en", "en-GB", Closeness.REGION),
    ("en-US", "en-GB", Closeness.REGION),
    ("zh-HK", "zh-Hant", Closeness.REGION),
    ("zh", "zh-Hant", Closeness.SCRIPT),
    ("sr", "sr-Latn", Closeness.SCRIPT),
    ("zh-TW", "zh-Hans", None),
    ("zh-TW", "zh", None),
    ("sr-Latn", "sr", None),
    ("sr-ME", "sr-Cyrl", None),  # Montenegro writes Latin
    # Codes of yesterday and of other standards.
    ("iw", "he", Closeness.GENERAL),
    ("he", "iw", Closeness.GENERAL),
    ("in", "id", Closeness.GENERAL),
    ("ji", "yi", Closeness.GENERAL),
    ("no", "nb", Closeness.GENERAL),
    ("nb-NO", "no", Closeness.GENERAL),
    ("eng", "en", Closeness.GENERAL),
    ("ger", "de", Closeness.GENERAL),
    ("deu", "de", Closeness.GENERAL),
    ("en", "eng_Latn", Closeness.LIKELY),
    ("zh-CN", "zho_Hans", Closeness.LIKELY),
    ("cmn", "zh", Closeness.GENERAL),
    ("arb", "ar", Closeness.GENERAL),
    ("tl", "fil", Closeness.GENERAL),
    ("sh", "sr-Latn", Closeness.GENERAL),
    ("zh-min-nan", "nan", Closeness.GENERAL),
    # Other languages, however near.
    ("nn", "nb", None),
    ("da", "no", None),
    ("hr", "sr-Latn", None),
    ("gsw", "de", None),
    ("yue", "zh", None),
    ("en", "de", None),
    # What is no tag.
    ("a", "A", Closeness.EXACT),
    ("a", "b", None),
    ("english please", "en", None),
    ("en-", "en", None),
    ("en" + "-aaaaaaaa" * 100, "en", None),
    ("x-klingon", "x-klingon", Closeness.EXACT),
]


def test_closeness():
    found = [(asked, offered, closeness(asked, offered)) for asked, offered, _ in CASES]

    assert found == CASES
