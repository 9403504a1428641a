"""How often the guard warns of good translations, and how often it notices bad ones: what its bounds were chosen by.

    python tests/quality/guard_bounds.py --data DATA

Good are the references of the development sets, both ways.  Bad are the same with their end left out, twice in a row,
with their last three words four times, and the sources themselves.  Prints how many are warned of, in percent, and what
a call costs.
"""

import json
import sys
import timeit
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import PRETRAINED_DIR
from model.data import Pair, read_dev_set
from model.recipe import Languages
from model.tokenizer import Tokenizer
from service.records import WarningKind
from service.text.guard import faults

SETS = ("tatoeba_dev", "multi30k_val", "multi30k_test_2016_flickr", "flores-dev", "wmt13")
KINDS = (WarningKind.REPETITION, WarningKind.COPIED, WarningKind.WRONG_SCRIPT, WarningKind.LENGTH_RATIO)
MIN_WORDS = 8  # of what is damaged


def first_words(text: str, share: float) -> str:
    """Return the first words of a text."""
    words = text.split()
    return " ".join(words[: int(share * len(words))])


DAMAGES: dict[str, Callable[[Pair], str]] = {
    "first two thirds": lambda pair: first_words(pair.target, 2 / 3),
    "first half": lambda pair: first_words(pair.target, 1 / 2),
    "first third": lambda pair: first_words(pair.target, 1 / 3),
    "twice": lambda pair: f"{pair.target} {pair.target}",
    "loop at the end": lambda pair: " ".join([pair.target, *pair.target.split()[-3:] * 3]),
    "the source": lambda pair: pair.source,
}


def main(data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")]) -> None:
    """Measure what the guard finds."""
    table = Table(
        "", "translations", *(kind.value for kind in KINDS), "any", title="warned of, %", title_justify="left"
    )
    found = {}
    for name in ("en-de", "de-en"):
        source, _, target = name.partition("-")
        languages = Languages(source=source, target=target)
        tokenizer = Tokenizer.load(PRETRAINED_DIR / name / "shared.spm")
        pairs = [pair for set_name in SETS for pair in read_dev_set(data, set_name, languages)]
        long = [pair for pair in pairs if len(pair.source.split()) >= MIN_WORDS]
        cases = {"references": pairs}
        cases |= {what: [Pair(pair.source, damage(pair)) for pair in long] for what, damage in DAMAGES.items()}
        for what, damaged in cases.items():
            row = shares(damaged, languages, tokenizer)
            found[f"{name}, {what}"] = row
            table.add_row(f"{name}, {what}", str(len(damaged)), *(f"{share:.2f}" for share in row.values()))
    plain = [pair for pair in pairs if 60 <= len(pair.source) <= 100][:1_000]
    cost_us = timeit.timeit(lambda: [check(pair, languages, 20, 20) for pair in plain], number=5) / 5 / len(plain) * 1e6
    Console().print(table)
    print(f"a sentence of 60 to 100 characters: {cost_us:.1f} microseconds")
    print(json.dumps({"warned": found, "microseconds": round(cost_us, 2)}))


def check(pair: Pair, languages: Languages, source_tokens: int, target_tokens: int) -> set[WarningKind]:
    """Return the kinds of faults of a translation."""
    found = faults(
        pair.source,
        pair.target,
        source_language=languages.source,
        target_language=languages.target,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
    )
    return {kind for kind, _ in found}


def shares(pairs: Sequence[Pair], languages: Languages, tokenizer: Tokenizer) -> dict[str, float]:
    """Return how many of the pairs have each fault, and any fault, in percent."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        kinds = check(pair, languages, len(tokenizer.encode(pair.source)), len(tokenizer.encode(pair.target)))
        counts.update(kind.value for kind in kinds)
        counts["any"] += bool(kinds)
    return {name: 100 * counts[name] / len(pairs) for name in (*(kind.value for kind in KINDS), "any")}


if __name__ == "__main__":
    typer.run(main)
