"""How often the quality check warns of good translations and notices bad ones: what its bounds were chosen by.

    python bench/quality/issue_bounds.py --data DATA

Good are the references of the development sets.  Bad are the same with their end left out, twice in a row, with their
last three words four times, and the sources themselves.  Prints how many are warned of, in percent, and what a call
costs.  Where a bundle can score translations, a second table says as much of the words without a counterpart, for 3,000
of the pairs.
"""

import json
import random
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
from model.corpus import Pair, read_dev_set
from model.recipe import Languages
from model.tokenizer import Tokenizer
from service.engine.wire import Job, JobResult, SearchParams
from service.local import LocalTranslator
from service.records import WarningKind
from service.text import quality
from service.text.alignment import links, matrix, word_attention

SETS = ("tatoeba_dev", "multi30k_val", "multi30k_test_2016_flickr", "flores-dev", "wmt13")
KINDS = (WarningKind.REPETITION, WarningKind.COPIED, WarningKind.WRONG_SCRIPT, WarningKind.LENGTH_RATIO)
MIN_WORDS = 8  # of what is damaged
SCORED = 3_000  # pairs


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


def main(
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")],
    bundle: Annotated[list[Path] | None, typer.Option(help="May be repeated. Default: the included ones.")] = None,
) -> None:
    """Measure what the quality check finds."""
    table = Table(
        "", "translations", *(kind.value for kind in KINDS), "any", title="warned of, %", title_justify="left"
    )
    covered = Table("", "translations", "low_coverage", title="warned of, %", title_justify="left")
    found: dict[str, dict[str, float]] = {}
    for directory in bundle or [PRETRAINED_DIR / name for name in ("en-de", "de-en")]:
        translator = LocalTranslator.open(directory, threads=1)
        name = directory.name
        languages = Languages(source=translator.info.source_language, target=translator.info.target_language)
        tokenizer = Tokenizer.load(directory / "shared.spm")
        pairs = [pair for set_name in SETS for pair in read_dev_set(data, set_name, languages)]
        for what, damaged in cases(pairs).items():
            row = shares(damaged, languages, tokenizer)
            found[f"{name}, {what}"] = row
            table.add_row(f"{name}, {what}", str(len(damaged)), *(f"{share:.2f}" for share in row.values()))
        if translator.info.has_scorer:
            for what, damaged in cases(random.Random(1).sample(pairs, SCORED)).items():
                is_low = [value < quality.LEAST_COVERAGE for value in coverages(translator, damaged)]
                low = 100 * sum(is_low) / len(damaged)
                found[f"{name}, {what}"]["low_coverage"] = low
                covered.add_row(f"{name}, {what}", str(len(damaged)), f"{low:.2f}")
    plain = [pair for pair in pairs if 60 <= len(pair.source) <= 100][:1_000]
    costs_s = timeit.repeat(lambda: [check(pair, languages, 20, 20) for pair in plain], number=1, repeat=15)
    cost_us = min(costs_s) / len(plain) * 1e6  # the least disturbed one
    Console().print(table, covered if covered.row_count else "")
    print(f"a sentence of 60 to 100 characters: {cost_us:.1f} microseconds")
    print(json.dumps({"warned": found, "microseconds": round(cost_us, 2)}))


def cases(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Return good and bad translations."""
    long = [pair for pair in pairs if len(pair.source.split()) >= MIN_WORDS]
    damaged = {what: [Pair(pair.source, damage(pair)) for pair in long] for what, damage in DAMAGES.items()}
    return {"references": list(pairs)} | damaged


def coverages(translator: LocalTranslator, pairs: Sequence[Pair]) -> list[float]:
    """Return the coverage of translations by the attention of the model that scores them."""
    codec, engine = translator._codec, translator._engine
    for index, pair in enumerate(pairs):
        source_ids, target_ids = tuple(codec.tokenize(pair.source)), tuple(codec.tokenize(pair.target)[:-1])
        engine.submit(Job(id=index, source_ids=source_ids, params=SearchParams(), scored_ids=target_ids))
    found: dict[int, float] = {}
    while len(found) < len(pairs):
        for outcome in engine.step():
            assert isinstance(outcome, JobResult)
            assert outcome.scores is not None
            source = pairs[outcome.job_id].source
            ids, source_spans = codec.tokenize_with_spans(source)
            target, target_spans = codec.decode_with_spans(outcome.hypotheses[0].token_ids)
            attention = matrix(outcome.scores.attention, len(ids))
            linked = links(word_attention(attention, source, source_spans, target, target_spans))
            found[outcome.job_id] = quality.coverage(source, linked)
    return [found[index] for index in range(len(pairs))]


def check(pair: Pair, languages: Languages, source_tokens: int, target_tokens: int) -> set[WarningKind]:
    """Return the kinds of issues of a translation."""
    found = quality.issues(
        pair.source,
        pair.target,
        source_language=languages.source,
        target_language=languages.target,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
    )
    return {kind for kind, _ in found}


def shares(pairs: Sequence[Pair], languages: Languages, tokenizer: Tokenizer) -> dict[str, float]:
    """Return how many of the pairs have each issue, and any issue, in percent."""
    counts: Counter[str] = Counter()
    for pair in pairs:
        kinds = check(pair, languages, len(tokenizer.encode(pair.source)), len(tokenizer.encode(pair.target)))
        counts.update(kind.value for kind in kinds)
        counts["any"] += bool(kinds)
    return {name: 100 * counts[name] / len(pairs) for name in (*(kind.value for kind in KINDS), "any")}


if __name__ == "__main__":
    typer.run(main)
