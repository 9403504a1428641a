"""How often a text is taken for another language than its own, by its length in letters.

    python bench/quality/detection.py --data DATA

Texts are the sentences of the dev sets and parts of them with 1 - 8 words, in English and in German.  "stays" is the
share of the texts in a source language that would come back untranslated since they are taken for the target's, "other"
since they are taken for a language of no model; "found" is the share of those in the target language that stay.
"""

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.corpus import read_dev_set
from model.recipe import Languages
from service.text.languages import Detector, judge

SETS = ("tatoeba_dev", "wmt13", "flores-dev")
LANGUAGES = ("en", "de")
LENGTHS = (0, 8, 16, 24, 32, 48, 64, 100_000)  # letters
SEED = 1


def texts(data: Path, most: int) -> Iterator[tuple[str, str]]:
    """Yield languages and texts."""
    source = random.Random(SEED)
    for name in SETS:
        pairs = read_dev_set(data, name, Languages(source="en", target="de"))
        for pair in source.sample(pairs, min(most, len(pairs))):
            for language, text in zip(LANGUAGES, pair, strict=True):
                yield language, text
                words = text.split()
                for length in (1, 2, 3, 4, 5, 6, 8):
                    if len(words) > length:
                        begin = source.randrange(len(words) - length)
                        yield language, " ".join(words[begin : begin + length])


def main(data: Annotated[Path, typer.Option()], sentences: int = 800) -> None:
    detector = Detector()
    counts: dict[int, list[int]] = defaultdict(lambda: [0] * 4)
    for language, text in texts(data, sentences):
        letters = sum(map(str.isalpha, text))
        other = LANGUAGES[language == "en"]
        row = counts[next(low for low, high in pairwise(LENGTHS) if low <= letters < high)]
        wrong, right = judge(text, [language], other, detector), judge(text, [other], language, detector)
        row[0] += 1
        row[1] += wrong.stays and wrong.found.language == other
        row[2] += wrong.stays and wrong.found.language != other
        row[3] += right.stays and right.found.language == language
    table = Table("letters", "texts", "stays %", "other %", "found %")
    result = []
    for low in sorted(counts):
        number, *others = counts[low]
        shares = [100 * count / number for count in others]
        table.add_row(f"from {low}", str(number), *(f"{share:.2f}" for share in shares))
        result.append([low, number, *(round(share, 3) for share in shares)])
    Console().print(table)
    print(json.dumps({"rows": result}))


if __name__ == "__main__":
    typer.run(main)
