"""Whatever a model does to digits, a translation has the numbers of its source or a warning."""

import re
from collections.abc import Iterator

import pytest

from service.records import TextFormat, WarningKind
from service.text.number_check import difference
from tests.fakes.scripted_model import Script, ScriptedPipeline, of_text
from tests.text.corpus import Case
from tests.text.judging import Translate, translated
from tests.text.over_grpc import included_models

ENGLISH = {
    "long digit strings": (
        "The town has 250000 inhabitants.",
        "My number is 7788990011, please write.",
        "The parcel 3300550077 is late.",
        "Enter the code 990099 and wait.",
        "He was visitor 1000000 of the museum.",
    ),
    "groups of three": (
        "The bridge cost 85,000,000 euros.",
        "Light travels 9,460,730,472,580 kilometres in a year.",
        "Only 4,004,004 of them voted.",
        "The planet is 6,000,000,000 years old.",
        "They planted 1,100,110 trees.",
    ),
    "amounts": (
        "The ticket costs 1,049.50 euros.",
        "The river is 1,233.7 kilometres long.",
        "It weighs 0.055 grams.",
        "The company earned 12.75 million euros.",
        "The price rose from 9.99 to 10.49 euros.",
    ),
    "codes": (
        "The account is GB33 BUKB 2020 1555 5555 55.",
        "Please call 0044 20 7946 0018 on Monday.",
        "The card 5500 0000 0000 0004 is new.",
        "Order QX-330077 has arrived.",
        "Our hotline is 1-888-200-0033.",
    ),
    "fractions": (
        "Add 1 1/2 spoons of sugar.",
        "It takes 3 3/4 hours by train.",
        "We ate 2/3 of the cake.",
        "The shop is open 24/7.",
        "The screw is 5/16 of an inch thick.",
    ),
    "dates": (
        "The museum opens on June 11, 2022.",
        "She was born on the 22nd of August 1977.",
        "The contract ends on 11/11/2011.",
        "The war began on 1 September 1939.",
        "Please answer before Oct. 30, 2026.",
    ),
    "times": (
        "The train leaves at 12:05 a.m.",
        "Dinner is at 7:30 p.m. in the garden.",
        "The film ends at 11:45 pm.",
        "The winner needed 2:05:44 hours.",
        "We open at 8 am and close at 6 pm.",
    ),
    "words": (
        "Seven of the twelve eggs were broken.",
        "Wake me at half past six.",
        "Forty thieves stole ninety horses.",
        "The shop opens at half past eight and closes at half past five.",
        "It weighs four and a half pounds.",
        "You must be back on Sunday at the latest.",
        "The seventies and the nineties were fun.",
        "The rainy season (November to March) is long.",
    ),
}
GERMAN = {
    "long digit strings": (
        "Die Stadt hat 250000 Einwohner.",
        "Meine Nummer ist 7788990011, bitte schreib mir.",
        "Das Paket 3300550077 kommt zu spät.",
        "Geben Sie den Code 990099 ein.",
        "Er war Besucher 1000000 im Museum.",
    ),
    "groups of three": (
        "Die Brücke kostete 85.000.000 Euro.",
        "Das Licht legt 9.460.730.472.580 Kilometer im Jahr zurück.",
        "Nur 4.004.004 von ihnen wählten.",
        "Der Planet ist 6.000.000.000 Jahre alt.",
        "Sie pflanzten 1 100 110 Bäume.",
    ),
    "amounts": (
        "Die Karte kostet 1.049,50 Euro.",
        "Der Fluss ist 1.233,7 Kilometer lang.",
        "Es wiegt 0,055 Gramm.",
        "Die Firma verdiente 12,75 Millionen Euro.",
        "Der Preis stieg von 9,99 auf 10,49 Euro.",
    ),
    "codes": (
        "Das Konto ist DE02 1203 0000 0000 2020 51.",
        "Bitte rufen Sie am Montag 030 901820 an.",
        "Die Karte 5500 0000 0000 0004 ist neu.",
        "Die Bestellung QX-330077 ist da.",
        "Unsere Nummer lautet 0800 200 0033.",
    ),
    "fractions": (
        "Nehmen Sie 1 1/2 Löffel Zucker.",
        "Mit dem Zug dauert es 3 3/4 Stunden.",
        "Wir aßen 2/3 des Kuchens.",
        "Der Laden ist 24/7 offen.",
        "Die Schraube ist 5/16 Zoll dick.",
    ),
    "dates": (
        "Das Museum öffnet am 11.06.2022.",
        "Sie wurde am 22. August 1977 geboren.",
        "Der Vertrag endet am 11.11.2011.",
        "Der Krieg begann am 1. September 1939.",
        "Bitte antworten Sie bis zum 30.10.26.",
    ),
    "times": (
        "Der Zug fährt um 0.05 Uhr.",
        "Das Essen ist um 19.30 Uhr im Garten.",
        "Der Film endet um 23:45 Uhr.",
        "Der Sieger brauchte 2:05:44 Stunden.",
        "Wir öffnen um 8 Uhr und schließen um 18 Uhr.",
    ),
    "words": (
        "Weck mich um halb sieben.",
        "Vierzig Räuber stahlen neunzig Pferde.",
        "Fünfundzwanzig Leute warteten sechsunddreißig Minuten.",
        "Vier Jahre später wurde ein Patent erteilt.",
        "Das Kind ist dreieinhalb Jahre alt.",
        "Der Kurs findet dienstags und am Mittwoch statt.",
        "Bis Sonnabend!",
        "Der zweite Mann lief als Vierter ins Ziel.",
    ),
}
CASES = [
    Case(f"{languages}, {kind}, {number}", text, languages=languages)
    for languages, kinds in (("en-de", ENGLISH), ("de-en", GERMAN))
    for kind, texts in kinds.items()
    for number, text in enumerate(texts)
]
SCRIPTS: dict[str, Script] = {
    "doubles digits": of_text(lambda text: re.sub(r"\d", r"\g<0>\g<0>", text.lower())),
    "drops every second digit": of_text(lambda text: re.sub(r"(\d)\D?\d", r"\1", text.lower())),
    "says other digits": of_text(lambda text: re.sub(r"\d", "8", text.lower())),
    "drops digits": of_text(lambda text: re.sub(r"\d", "", text.lower())),
    "counts on": of_text(lambda text: f"{text.lower()} 4711"),
}


@pytest.fixture(params=SCRIPTS)
def damaging(request: pytest.FixtureRequest) -> Iterator[Translate]:
    pipeline = ScriptedPipeline(SCRIPTS[request.param])
    yield pipeline.translate
    pipeline.close()


def is_right(case: Case, text: str) -> bool:
    return difference(case.text, text, *case.languages.split("-")) is None


def test_a_number_is_never_silently_wrong(damaging):
    answers = translated(damaging, CASES)

    silent = {
        case.text: answer.text
        for case, answer in zip(CASES, answers, strict=True)
        if not is_right(case, answer.text) and WarningKind.NUMBERS not in {warning.kind for warning in answer.warnings}
    }
    assert silent == {}


def test_digits_that_no_language_writes_otherwise_are_whole_whatever_the_model_says(damaging):
    cases = [case for case in CASES if any(kind in case.name for kind in ("long digit", "codes", "fractions"))]
    answers = translated(damaging, cases)

    spans = [re.findall(r"\d[\d /-]*\d", case.text) for case in cases]
    assert [
        case.text
        for case, spans, answer in zip(cases, spans, answers, strict=True)
        if any(one not in answer.text for one in spans)
    ] == []


def test_money_whose_sign_the_model_lacks_is_written_as_the_target_language_writes_it(damaging):
    prices = {"The ticket costs $1,049.50 today.": "$1.049,50", "Die Karte kostet 1.049,50 € im Laden.": "1,049.50 €"}
    cases = [Case(text, text, languages=pair) for text, pair in zip(prices, ("en-de", "de-en"), strict=True)]

    answers = translated(damaging, cases)

    for price, answer in zip(prices.values(), answers, strict=True):
        assert price in answer.text


@pytest.mark.slow
def test_the_included_models_give_the_numbers_of_every_kind(tmp_path_factory):
    with included_models(tmp_path_factory.mktemp("server")) as translate:
        html = [Case(case.name, f"<p>{case.text}</p>", TextFormat.HTML, languages=case.languages) for case in CASES]
        answers = translated(translate, [*CASES, *html])

    wrong = {
        case.text: answer.text
        for case, answer in zip([*CASES, *html], answers, strict=True)
        if not is_right(case, answer.text) or answer.warnings
    }
    assert wrong == {}
