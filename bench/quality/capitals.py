"""What it is worth to translate capitals as a sentence (`service/text/normalization.py`): chrF against such references.

python bench/quality/capitals.py --data DATA
"""

import sys
from pathlib import Path
from typing import Annotated

import sacrebleu
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import PRETRAINED_DIR
from model.corpus import read_dev_set
from model.recipe import Languages
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions

SENTENCES = 300


def main(
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")],
    name: Annotated[str, typer.Option("--set", help="Development set.")] = "tatoeba_dev",
) -> None:
    """Translate the first sentences of a set in capitals."""
    for model in ("en-de", "de-en"):
        translator = LocalTranslator.open(PRETRAINED_DIR / model, threads=1)
        languages = Languages(source=translator.info.source_language, target=translator.info.target_language)
        pairs = read_dev_set(data, name, languages)[:SENTENCES]
        references = [[pair.target.upper() for pair in pairs]]
        for what, segmentation in (("as they are", Segmentation.NONE), ("as sentences", Segmentation.SENTENCE)):
            options = TranslateOptions(segmentation=segmentation)
            answers = translator.translate_all([pair.source.upper() for pair in pairs], options)
            score = sacrebleu.corpus_chrf([answer.text.upper() for answer in answers], references).score
            print(f"{model}, {name}, {len(pairs)} sentences in capitals, {what}: chrF {score:.1f}")


if __name__ == "__main__":
    typer.run(main)
