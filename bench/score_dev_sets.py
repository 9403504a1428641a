"""BLEU and chrF of a bundle on development sets, and how fast it was: the table of the model card.

    python bench/score_dev_sets.py --data DATA

The same as `dragoman translate --bundle BUNDLE < SET.en | sacrebleu SET.de -m bleu chrf`, for several sets at once.
"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.bundle import Bundle, default_bundle_dir
from model.corpus import read_dev_set
from model.evaluate import score_translations
from model.recipe import Languages
from service.engine.wire import Runtime
from service.local import LocalTranslator
from service.records import TranslateOptions

SETS = ["tatoeba_dev", "multi30k_val", "multi30k_test_2016_flickr", "flores-dev", "wmt13"]


def main(
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")],
    bundle: Annotated[Path | None, typer.Option(help="Default: en-de.")] = None,
    sets: Annotated[list[str], typer.Option("--set", help="Development set; may be repeated.")] = SETS,
    precision: Annotated[str | None, typer.Option(help="int8 or fp32; default: the bundle's best.")] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    runtime: Annotated[Runtime, typer.Option(help="What computes.")] = "auto",
    shortlist: Annotated[bool, typer.Option(help="Only the target tokens of the shortlist.")] = False,
) -> None:
    """Score a bundle on development sets."""
    directory = bundle or default_bundle_dir()
    manifest = Bundle.load(directory).manifest
    languages = Languages(source=manifest.source_language, target=manifest.target_language)
    translator = LocalTranslator.open(directory, precision=precision, threads=threads, runtime=runtime)
    if shortlist and translator.info.runtime != "native":
        raise typer.BadParameter("only the native engine keeps to a shortlist")
    title = f"{manifest.name} {manifest.version}, {translator.info.precision}, beam {beam_size}, {threads} threads"
    title += f", {translator.info.runtime}{', shortlist' if shortlist else ''}"
    table = Table("set", "sentences", "BLEU", "chrF", "sentences/s", title=title)
    options = TranslateOptions(beam_size=beam_size, use_shortlist=shortlist)
    rows = []
    for name in sets:
        pairs = read_dev_set(data, name, languages)
        began = time.perf_counter()
        answers = translator.translate_all([pair.source for pair in pairs], options)
        translations = [answer.text for answer in answers]
        speed = len(pairs) / (time.perf_counter() - began)
        scores = score_translations(translations, [pair.target for pair in pairs])
        table.add_row(name, str(len(pairs)), f"{scores.bleu:.1f}", f"{scores.chrf:.1f}", f"{speed:.0f}")
        rows.append({"set": name, "bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2), "per_s": round(speed)})
    console = Console()
    console.print(table)
    console.print(f"BLEU {scores.bleu_signature}\nchrF {scores.chrf_signature}", highlight=False)
    how = {"precision": translator.info.precision, "runtime": translator.info.runtime, "shortlist": shortlist}
    print(json.dumps({"model": manifest.name, **how, "rows": rows}))


if __name__ == "__main__":
    typer.run(main)
