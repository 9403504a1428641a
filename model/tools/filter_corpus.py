"""Keep the pairs of a corpus that are translations of each other.

A pair stays where both sides have letters and are no copy, neither is in a third language, the same tags, placeholders
and addresses stand on both sides, the lengths fit, and two models find it likely: dual conditional cross-entropy
(Junczys-Dowmunt 2018), |a - b| + (a + b) / 2 of the mean nats per token in either direction.
Scores are written once and read again, so that other limits cost no second pass.
"""

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from py3langid.langid import MODEL_FILE, LanguageIdentifier
from rich.console import Console

from model.checkpoint import Checkpoint, load_checkpoint
from model.config import PAD_ID
from model.corpus import Pair, modernize_pair, read_lines, read_raw_corpus
from model.data import Example, collate, cut_batches
from model.files import write_whole
from model.optimizer import FASTEST, choose_device, choose_precision
from model.recipe import Languages
from model.tools.diversify import write_corpus

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)

_BATCH_TOKENS = 4_096
_MAX_TOKENS = 200  # longer sides are not scored, and left out
_LANGUAGE_CHARACTERS = 40  # shorter texts are told wrong too often
_LANGUAGE_CONFIDENCE = 0.9
_COPIED = re.compile(
    r"https?://[^\s<>\")]+|</?\w[^<>]*>|\$?\{+[^{}]*\}+|%(?:\d+\$)?[-.\d]*[sdif@]|%\(\w+\)[sd]|`[^`]+`"
)
_LETTER = re.compile(r"[^\W\d_]")

Score = tuple[float, float]  # nats per target token from source to target, and back; infinite: not scored


def is_plausible(pair: Pair, max_length_ratio: float = 2.5) -> bool:
    """Return whether both sides have letters, similar lengths, the same tags and placeholders, and are no mere copy."""
    if not all(map(_LETTER.search, pair)):
        return False
    if pair.source == pair.target and len(pair.source.split()) > 3:
        return False
    shorter, longer = sorted(map(len, pair))
    if longer > max_length_ratio * shorter + 15:
        return False
    source, target = (Counter(_COPIED.findall(side)) for side in pair)
    return source == target


class LanguageFilter:
    """Recognises text that is surely in another language than it should be."""

    def __init__(self) -> None:
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def is_foreign(self, text: str, language: str) -> bool:
        """Return whether a text of some length is told with confidence to be in another language (BCP 47)."""
        if len(text) < _LANGUAGE_CHARACTERS:
            return False
        found, confidence = self._identifier.classify(text)
        return bool(found != language.partition("-")[0] and confidence >= _LANGUAGE_CONFIDENCE)


def dual_cross_entropy(score: Score) -> float:
    """Return the score of the paper, lower is better: both directions should find the pair likely, and agree."""
    forward, backward = score
    return abs(forward - backward) + (forward + backward) / 2


@torch.inference_mode()
def nats_per_token(checkpoint: Checkpoint, pairs: Sequence[Pair]) -> list[float]:
    """Return the mean negative log-likelihood of each target; infinite where a side is empty or over 200 tokens."""
    device = choose_device("auto")
    model, tokenizer = checkpoint.model().to(device), checkpoint.tokenizer()
    examples = [Example(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in pairs]
    fitting = [index for index, example in enumerate(examples) if all(0 < len(side) <= _MAX_TOKENS for side in example)]
    fitting.sort(key=lambda index: examples[index].num_tokens)
    scores = [float("inf")] * len(pairs)
    done = 0
    precision = choose_precision(FASTEST, device)
    for run in cut_batches([examples[index] for index in fitting], _BATCH_TOKENS):
        batch = collate(run).to(device)
        with torch.autocast(device.type, precision, enabled=precision is not torch.float32):
            memory = model.encode(batch.source, batch.source_lengths)
            states = model.decode(batch.target_inputs, memory, batch.source_lengths)
            logits = (states @ model.embedding.weight.t()).float()  # [B, T, V]
        chosen = logits.gather(-1, batch.target_outputs.unsqueeze(-1)).squeeze(-1)
        is_token = batch.target_outputs != PAD_ID
        nll = ((logits.logsumexp(-1) - chosen) * is_token).sum(-1) / is_token.sum(-1)  # [B]
        for index, value in zip(fitting[done : done + len(run)], nll.tolist(), strict=True):
            scores[index] = value
        done += len(run)
    return scores


def score_pairs(pairs: Sequence[Pair], forward: Checkpoint, backward: Checkpoint, cache: Path) -> list[Score]:
    """Return the scores of all pairs from `cache`, or compute them and write them there.

    Raises:
        ValueError: the cache is of other pairs or models.
    """
    key = _digest(pairs, forward, backward)
    if cache.is_file():
        found, *lines = read_lines(cache)
        if found != key:
            raise ValueError(f"{cache} has scores of other pairs or by other models: delete it")
        return [(float(a), float(b)) for a, b in (line.split("\t") for line in lines)]
    reversed_pairs = [Pair(pair.target, pair.source) for pair in pairs]
    scores = list(zip(nats_per_token(forward, pairs), nats_per_token(backward, reversed_pairs), strict=True))
    cache.parent.mkdir(parents=True, exist_ok=True)
    lines = [key, *(f"{a:.3f}\t{b:.3f}" for a, b in scores)]
    write_whole(cache, gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return scores


def _digest(pairs: Sequence[Pair], *models: Checkpoint) -> str:
    digest = hashlib.sha256("\n".join(map("\t".join, pairs)).encode())
    for model in models:
        for name in sorted(model.weights):
            digest.update(model.weights[name].numpy().tobytes())
    return digest.hexdigest()


def plausible_pairs(pairs: Iterable[Pair], languages: Languages) -> list[Pair]:
    """Return the pairs that rules and language identification leave, German spelt as since 1996."""
    recognizer = LanguageFilter()
    return [
        pair
        for pair in (modernize_pair(pair, languages) for pair in pairs)
        if is_plausible(pair)
        and not recognizer.is_foreign(pair.source, languages.source)
        and not recognizer.is_foreign(pair.target, languages.target)
    ]


def _require_backward(model: Checkpoint, languages: Languages) -> None:
    source, target = model.meta.source_language, model.meta.target_language
    if (source, target) != (languages.target, languages.source):
        wanted = f"from {languages.target} to {languages.source} is needed"
        raise ValueError(f"--backward is a model from {source} to {target}, {wanted}")


@app.command()
def main(
    corpora: Annotated[list[str], typer.Argument(help="Names of corpora in DATA/train.")],
    data: Annotated[Path, typer.Option(help="Directory with train/NAME/NAME.LANG.gz.")],
    out: Annotated[Path, typer.Option(help="Directory of the same kind, with what stays, and NAME.scores.tsv.gz.")],
    forward: Annotated[Path, typer.Option(help="Checkpoint or bundle with weights; its direction names the sides.")],
    backward: Annotated[Path, typer.Option(help="One of the other direction.")],
    max_score: Annotated[float, typer.Option(help="Pairs with a higher dual cross-entropy are left out.")] = 6.0,
) -> None:
    """Filter corpora.

    Example: python -m model.tools.filter_corpus rustbook php_manual --data DATA --out CLEAN
    --forward model/pretrained/en-de --backward model/pretrained/de-en
    """
    try:
        models = load_checkpoint(forward), load_checkpoint(backward)
        languages = Languages(source=models[0].meta.source_language, target=models[0].meta.target_language)
        _require_backward(models[1], languages)
        for name in corpora:
            raw = read_raw_corpus(data, name, languages)
            pairs = plausible_pairs(raw, languages)
            directory = out / "train" / name
            scores = score_pairs(pairs, *models, directory / f"{name}.scores.tsv.gz")
            kept = [pair for pair, score in zip(pairs, scores, strict=True) if dual_cross_entropy(score) <= max_score]
            write_corpus(directory, kept, languages)
            console.log(f"{name}: {len(raw):,} pairs, {len(pairs):,} by the rules, {len(kept):,} likely")
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    app(prog_name="python -m model.tools.filter_corpus")
