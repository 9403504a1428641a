"""More pairs from the same text: a corpus of what a model says to the sentences of another corpus.

Data diversification (Nguyen et al. 2020): training sees a sentence with other wordings of its translation, from models
of both directions.  A sentence's hypothesis nearest to the corpus' translation makes a pair (sequence-level
interpolation, Kim & Rush 2016, section 3.3; here by chrF), unless it is that translation.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from sacrebleu import CHRF

from model.corpus import Pair, read_lines, read_raw_corpus
from model.files import write_whole
from model.recipe import Languages

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)

_CHRF = CHRF()


def known_translations(pairs: Iterable[Pair]) -> Mapping[str, Sequence[str]]:
    """Return each source with all of its targets: a corpus has several of everyday sentences."""
    known: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        known[pair.source].append(pair.target)
    return known


def read_said(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield sentences and their hypotheses from the lines of `dragoman translate --json`, without failed ones.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; a line is no such JSON; with its number.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            answer = json.loads(line)
            said = answer["source"], [hypothesis["text"] for hypothesis in answer["hypotheses"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not what `dragoman translate --json` prints ({error})") from error
        if said[1]:
            yield said


def new_wording(hypotheses: Sequence[str], known: Sequence[str], min_chrf: float = 0.0) -> str | None:
    """Return the hypothesis nearest to a known translation.

    None where a hypothesis is known already (the others are worse then), or where the nearest has less than `min_chrf`.
    """
    if any(text in known for text in hypotheses):
        return None
    chrf, text = max((_CHRF.sentence_score(text, known).score, text) for text in hypotheses)
    return text if chrf >= min_chrf else None


def new_pairs(
    said: Iterable[tuple[str, Sequence[str]]], known: Mapping[str, Sequence[str]], min_chrf: float = 0.0
) -> Iterator[Pair]:
    """Yield pairs that the corpus does not have, of sentences that it has."""
    for source, hypotheses in said:
        if source in known and (wording := new_wording(hypotheses, known[source], min_chrf)):
            yield Pair(source, wording)


def write_corpus(directory: Path, pairs: Iterable[Pair], languages: Languages) -> int:
    """Write a corpus as `read_corpus` reads it, named as its directory; return the number of pairs."""
    directory.mkdir(parents=True, exist_ok=True)
    written = list(pairs)
    for side, language in enumerate((languages.source, languages.target)):
        text = "".join(f"{pair[side]}\n" for pair in written)
        write_whole(directory / f"{directory.name}.{language}.gz", gzip.compress(text.encode()))
    return len(written)


@app.command()
def main(
    said: Annotated[Path, typer.Argument(help="What `dragoman translate --json` printed, plain or .gz.")],
    data: Annotated[Path, typer.Option(help="Directory with train/NAME/NAME.LANG.gz.")],
    corpus: Annotated[str, typer.Option(help="The corpus whose sentences were translated.")],
    source: Annotated[str, typer.Option("--from", help="Their language, as the corpus' files end.")],
    target: Annotated[str, typer.Option("--to", help="The language they were translated into.")],
    out: Annotated[Path, typer.Option(help="Directory of the new corpus, which takes its name.")],
    min_chrf: Annotated[float, typer.Option(help="Less similar to the corpus' translation: left out.")] = 50.0,
) -> None:
    """Make a corpus of what a model says to the sentences of another.

    Example: zcat DATA/train/tatoeba/tatoeba.de.gz > tatoeba.de;
    dragoman translate --bundle de-en --json --num-hypotheses 4 --file tatoeba.de > said.jsonl;
    python -m model.tools.diversify said.jsonl --data DATA --corpus tatoeba --from de --to en
    --out DATA/train/tatoeba-said
    """
    languages = Languages(source=source, target=target)
    try:
        known = known_translations(read_raw_corpus(data, corpus, languages))  # as it was translated
        answers = list({text: (text, hypotheses) for text, hypotheses in read_said(said)}.values())
        pairs = new_pairs(track(answers, "comparing", console=console, transient=True), known, min_chrf)
        count = write_corpus(out, pairs, languages)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    console.log(f"{out}: {count:,} new pairs of {len(answers):,} sentences")


if __name__ == "__main__":
    app(prog_name="python -m model.tools.diversify")
