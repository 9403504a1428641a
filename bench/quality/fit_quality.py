"""Fit the weights of the quality estimate (`service/text/quality.py`), and say how good it is where it was not fitted.

    python bench/quality/fit_quality.py --data DATA

Fitted by least squares to the chrF of each sentence's translation by the included models, flores-dev and tatoeba_dev,
both directions at once.  The correlations with chrF are of the two halves of wmt13.  Sentences that the models are not
reliable for are left out: the server translates them in pieces.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import sacrebleu
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import PRETRAINED_DIR
from model.corpus import read_dev_set
from model.recipe import Languages
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions
from service.text import quality

FITTED = ("flores-dev", "tatoeba_dev")
HELD_OUT = "wmt13"

Points = tuple[np.ndarray, np.ndarray]  # features [N, F], chrF from 0 to 1 [N]


def points(data: Path, set_name: str, translator: LocalTranslator) -> Points:
    """Translate a set, and return what the estimate knows of each sentence beside its chrF."""
    info = translator.info
    pairs = read_dev_set(data, set_name, Languages(source=info.source_language, target=info.target_language))
    options = TranslateOptions(segmentation=Segmentation.NONE)
    features, scores = [], []
    for pair, answer in zip(pairs, translator.translate_all([pair.source for pair in pairs], options), strict=True):
        best = answer.hypotheses[0]
        if answer.source_tokens > (info.reliable_source_tokens or info.max_source_tokens) or not best.text:
            continue
        counts = {"source_tokens": answer.source_tokens, "target_tokens": best.target_tokens}
        features.append(quality.features(pair.source, best.text, score=best.score, **counts))
        scores.append(sacrebleu.sentence_chrf(best.text, [pair.target]).score / 100)
    return np.array(features), np.array(scores)


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse])


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Pearson's correlation; of ranks it is Spearman's."""
    return float(np.corrcoef(first, second)[0, 1])


def main(data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")]) -> None:
    """Fit the weights and check them."""
    fitted: list[Points] = []
    held_out: dict[str, Points] = {}
    for name in ("en-de", "de-en"):
        translator = LocalTranslator.open(PRETRAINED_DIR / name, threads=1)
        fitted += [points(data, set_name, translator) for set_name in FITTED]
        whole = points(data, HELD_OUT, translator)
        middle = len(whole[0]) // 2
        held_out[f"{name}, {HELD_OUT}, first half"] = (whole[0][:middle], whole[1][:middle])
        held_out[f"{name}, {HELD_OUT}, second half"] = (whole[0][middle:], whole[1][middle:])
    features = np.vstack([of_set[0] for of_set in fitted])
    weights, *_ = np.linalg.lstsq(features, np.concatenate([of_set[1] for of_set in fitted]), rcond=None)
    table = Table("held out", "sentences", "mean chrF", "mean estimate", "Pearson", "Spearman")
    found: dict[str, object] = {"weights": [round(float(weight), 4) for weight in weights]}
    for name, (known, scores) in held_out.items():
        estimates = np.clip(known @ weights, 0, 1)
        spearman = correlation(ranks(estimates), ranks(scores))
        numbers = (scores.mean(), estimates.mean(), correlation(estimates, scores), spearman)
        table.add_row(name, str(len(scores)), *(f"{number:.3f}" for number in numbers))
        found[name] = [round(float(number), 3) for number in numbers]
    Console().print(table)
    print("weights:", found["weights"])
    print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
