"""Whether numbers come through: what the models alone do with them, what the server does, and how often it warns.

    python bench/quality/digits.py --data DATA

Translates the sentences of the development sets that have digits, and sentences of its own with numbers of all kinds.
"Same digits" counts sentences whose translation has the digits of the source, in whatever order and with whatever
separators; "right" counts those whose numbers mean the same (`service/text/number_check.py`).  The last table says how
many references have a warning: false alarms, and references with other numbers.
"""

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import PRETRAINED_DIR
from model.corpus import Pair, read_dev_set
from model.recipe import Languages
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions, Translation, WarningKind
from service.text.number_check import difference

SETS = ("tatoeba_dev", "multi30k_val", "multi30k_test_2016_flickr", "flores-dev", "wmt13")
ALONE = TranslateOptions(segmentation=Segmentation.NONE)
TEMPLATES = {
    "en": (
        *("There were {people} people in the city.", "The company lost {euros} euros last year."),
        *("The house costs {price} dollars.", "The river is {decimal} kilometres long."),
        *("Please call {phone} before noon.", "Your code is {code}.", "The train leaves at {hour}:{minute} {half}."),
        *(
            "We meet on {month} {day}, {year}.",
            "She was born on {day} {month} {year}.",
            "It costs {price}, not {decimal}.",
        ),
        *(
            "Add {mixed} cups of milk.",
            "He finished {ordinal} in the race.",
            "About {share} % of {people} voters said yes.",
        ),
        *(
            "Between {year} and {year} prices rose by {decimal} %.",
            "The order {order} arrived on {day}.{number}.{year}.",
        ),
        *("Rooms {number}, {number} and {number} are free.", "The state owes {big} million dollars."),
    ),
    "de": (
        *("Es waren {people} Menschen in der Stadt.", "Die Firma verlor im letzten Jahr {euros} Euro."),
        *("Das Haus kostet {price} Euro.", "Der Fluss ist {decimal} Kilometer lang."),
        *(
            "Bitte rufen Sie vor Mittag {phone} an.",
            "Ihr Code lautet {code}.",
            "Der Zug fährt um {hour24}.{minute} Uhr ab.",
        ),
        *("Wir treffen uns am {day}. {month} {year}.", "Die Frist endet am {day}.{number}.{year}."),
        *(
            "Es kostet {price}, nicht {decimal}.",
            "Nehmen Sie {mixed} Tassen Milch.",
            "Er kommt am {day}.{number}. um {hour24} Uhr.",
        ),
        *(
            "Etwa {share} % der {people} Wähler sagten ja.",
            "Zwischen {year} und {year} stiegen die Preise um {decimal} %.",
        ),
        *("Die Bestellung {order} ist da.", "Die Zimmer {number}, {number} und {number} sind frei."),
        *("Der Staat schuldet {big} Millionen Euro.",),
    ),
}
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
}


def own_sentences(language: str, count: int) -> list[str]:
    """Return sentences with numbers, the same in every run."""
    chance = random.Random(1)
    sentences = []
    for index in range(count):
        template = TEMPLATES[language][index % len(TEMPLATES[language])]
        while "{" in template:
            name = template[template.index("{") + 1 : template.index("}")]
            template = template.replace(f"{{{name}}}", _number(name, language, chance), 1)
        sentences.append(template)
    return sentences


def _number(name: str, language: str, chance: random.Random) -> str:
    def written(text: str) -> str:
        return text if language == "en" else text.translate(str.maketrans(",.", ".,"))

    made = {
        "people": lambda: written(f"{chance.choice([10**3, 10**4, 10**5, 10**6]) * chance.randint(1, 99):,}"),
        "euros": lambda: written(f"{chance.randint(10**6, 10**11):,}"),
        "price": lambda: written(f"{chance.uniform(10, 99_999):,.2f}"),
        "decimal": lambda: written(f"{chance.uniform(0, 999):.{chance.randint(1, 2)}f}"),
        "phone": lambda: "".join(chance.choices("0123456789", k=chance.randint(7, 11))),
        "code": lambda: "".join(chance.choices("0123456789", k=chance.randint(4, 9))),
        "order": lambda: f"{chance.choice(['AB', 'X', 'INV'])}-{chance.randint(1_000, 999_999)}",
        "mixed": lambda: f"{chance.randint(1, 9)} {chance.choice(['1/2', '1/4', '3/4', '2/3'])}",
        "ordinal": lambda: f"{chance.randint(4, 20)}th",
        "hour": lambda: str(chance.randint(1, 12)),
        "hour24": lambda: str(chance.randint(0, 23)),
        "minute": lambda: f"{chance.randint(1, 59):02}",
        "half": lambda: chance.choice(["am", "pm", "p.m.", "a.m."]),
        "day": lambda: str(chance.randint(1, 28)),
        "number": lambda: str(chance.randint(1, 12)),
        "year": lambda: str(chance.randint(1800, 2030)),
        "share": lambda: str(chance.randint(1, 99)),
        "big": lambda: written(f"{chance.uniform(1, 9_999):,.1f}"),
        "month": lambda: chance.choice(MONTHS[language].split()),
    }
    return made[name]()


def main(
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz, or that directory itself.")],
    sentences: Annotated[int, typer.Option(help="Of each kind and direction.")] = 1_000,
) -> None:
    """Compare the numbers of sources and translations."""
    data = data.parent if data.name == "dev" else data
    columns = ("", "sentences", "same digits, %", "right, %", "warned of, %", "wrong without a warning", "CPU, ms each")
    table = Table(*columns, title="numbers", title_justify="left")
    references = Table(
        "", "with digits", "warned of, %", "all", "warned of, %", title="references", title_justify="left"
    )
    found: dict[str, object] = {}
    for name in ("en-de", "de-en"):
        translator = LocalTranslator.open(PRETRAINED_DIR / name, threads=1)
        languages = Languages(source=translator.info.source_language, target=translator.info.target_language)
        pairs = [pair for of_set in SETS for pair in read_dev_set(data, of_set, languages)]
        with_digits = [pair for pair in pairs if any(map(str.isdecimal, pair.source + pair.target))]
        texts = [pair.source for pair in with_digits if any(map(str.isdecimal, pair.source))]
        kinds = {
            "dev sets": random.Random(1).sample(texts, min(sentences, len(texts))),
            "own": own_sentences(languages.source, sentences),
        }
        for kind, chosen in kinds.items():
            for what, options in (("model alone", ALONE), ("server", None)):
                began = time.process_time()
                answers = list(translator.translate_all(chosen, options))
                row = _row(chosen, answers, languages) | {"ms": 1e3 * (time.process_time() - began) / len(chosen)}
                found[f"{name}, {kind}, {what}"] = row
                table.add_row(f"{name}, {kind}, {what}", *(f"{value:.5g}" for value in row.values()))
        alarms = sum(_is_other(pair, languages) for pair in with_digits)
        found[f"{name}, references"] = {"with_digits": len(with_digits), "warned": alarms, "all": len(pairs)}
        shares = (f"{100 * alarms / len(part):.2f}" for part in (with_digits, pairs))
        references.add_row(name, str(len(with_digits)), next(shares), str(len(pairs)), next(shares))
    Console(width=160).print(table, references)
    print(json.dumps(found))


def _is_other(pair: Pair, languages: Languages) -> bool:
    return difference(pair.source, pair.target, languages.source, languages.target) is not None


def _row(texts: Sequence[str], answers: Sequence[Translation], languages: Languages) -> dict[str, float]:
    pairs = [Pair(text, answer.text) for text, answer in zip(texts, answers, strict=True)]
    warned = [any(warning.kind is WarningKind.NUMBERS for warning in answer.warnings) for answer in answers]
    other = [_is_other(pair, languages) for pair in pairs]
    same = [_digits(pair.source) == _digits(pair.target) for pair in pairs]
    return {
        "sentences": len(texts),
        "same_digits": 100 * sum(same) / len(texts),
        "right": 100 - 100 * sum(other) / len(texts),
        "warned": 100 * sum(warned) / len(texts),
        "unwarned": sum(is_other and not is_warned for is_other, is_warned in zip(other, warned, strict=True)),
    }


def _digits(text: str) -> list[str]:
    return sorted(filter(str.isdecimal, text))


if __name__ == "__main__":
    typer.run(main)
