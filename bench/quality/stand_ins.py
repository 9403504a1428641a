"""Which stand-ins for protected spans models copy best: `service.text.span_strategies.STAND_INS`.

    python bench/quality/stand_ins.py [--bundle BUNDLE ...]

Translates the sentences of stand_ins.tsv (language, where the spans stand, the sentence with one or two {}) with each
pair of stand-ins in place of the spans, and says in how many per cent of the translations each one stands exactly
once.  The last rows have spans themselves in these places: what a model does with them if nobody helps.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import included_bundle_dirs
from service.local import LocalTranslator
from service.text.span_strategies import find_all

Pair: TypeAlias = tuple[str, str]

CANDIDATES: tuple[Pair, ...] = (
    *(("XA", "XB"), ("XP", "XR"), ("XK", "XM"), ("QA", "QB"), ("ZA", "ZB"), ("XYZ", "XYQ"), ("Q", "X")),
    *(("X1", "X2"), ("X5", "X6"), ("Q1", "Q2"), ("XQ1", "XQ2"), ("ID1", "ID2"), ("PH1", "PH2"), ("X91", "Y92")),
    *(("5284", "6937"), ("9157", "3826"), ("7391", "8462"), ("4711", "4712"), ("739", "846"), ("91", "92")),
    *(("R2D", "C3P"), ("R4D", "K7P"), ("X4Y", "X7Z"), ("A12", "B34"), ("Z-1", "Z-2"), ("(1)", "(2)"), ("%1", "%2")),
    *(("Zorvak", "Zibrek"), ("Xeno", "Zeno"), ("Anna", "Peter"), ("NATO", "UNO"), ("BMW", "SAP")),
)
SPANS: tuple[Pair, ...] = (
    *(("example.com", "www.example.org"), ("report.pdf", "a.txt"), ("1.2.3", "v2.0"), ("%s", "%d"), ("-v", "--force")),
)


def main(
    bundle: Annotated[list[Path] | None, typer.Option(help="directories; without it, the included models")] = None,
) -> None:
    """Measure each bundle."""
    lines = Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    for directory in bundle or included_bundle_dirs():
        translator = LocalTranslator.open(directory)
        sentences = [(place, text) for language, place, text in rows if language == translator.info.source_language]
        results = {pair: copied(translator, sentences, pair) for pair in (*CANDIDATES, *SPANS)}
        report(directory.name, sentences, results)


def copied(translator: LocalTranslator, sentences: list[Pair], pair: Pair) -> list[bool]:
    """For each sentence: whether its translation has each word of the pair that was put into it exactly once."""
    words = [pair[: text.count("{}")] for _, text in sentences]
    texts = (text.format(*some) for (_, text), some in zip(sentences, words, strict=True))
    targets = (translation.text for translation in translator.translate_all(texts))
    found = [find_all(some, target) for some, target in zip(words, targets, strict=True)]
    return [all(len(places) == 1 for places in one.values()) for one in found]


def report(name: str, sentences: list[Pair], results: dict[Pair, list[bool]]) -> None:
    """Print the shares by place, the best candidates first."""
    places = list(dict.fromkeys(place for place, _ in sentences))
    table = Table("stand-ins", "all", *places, title=f"{name}: copied, % of {len(sentences)} sentences")
    shares = {pair: 100 * sum(intact) / len(intact) for pair, intact in results.items()}
    for pair in sorted(CANDIDATES, key=lambda pair: -shares[pair]) + list(SPANS):
        by_place = [
            [ok for ok, (at, _) in zip(results[pair], sentences, strict=True) if at == place] for place in places
        ]
        table.add_row(" ".join(pair), f"{shares[pair]:.1f}", *(f"{100 * sum(one) / len(one):.0f}" for one in by_place))
    Console(width=140).print(table)
    print(json.dumps({"bundle": name, "copied": {" ".join(pair): round(share, 1) for pair, share in shares.items()}}))


if __name__ == "__main__":
    typer.run(main)
