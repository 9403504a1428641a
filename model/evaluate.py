"""How good a checkpoint is: loss, BLEU and chrF on development sets."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import sacrebleu
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn.utils.rnn import pad_sequence

from model.checkpoint import load_checkpoint
from model.config import EOS_ID, PAD_ID
from model.corpus import Pair, read_dev_set
from model.data import collate, cut_batches, encode_pairs
from model.loss import projected_cross_entropy
from model.optimizer import choose_device
from model.recipe import BatchConfig, Languages
from model.recurrent import Recurrent
from model.search import BeamConfig, beam_search, greedy_search
from model.tokenizer import Tokenizer
from model.transformer import Transformer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

_BATCH_TOKENS = 4_096
_ROWS = {"cpu": 64, "cuda": 1_024}  # sentences that are translated together


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Quality of a set of translations."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score_translations(translations: Sequence[str], references: Sequence[str], bleu_tokenizer: str = "13a") -> Scores:
    """Return corpus BLEU and chrF by sacrebleu's defaults (Post 2018).

    `bleu_tokenizer` is "13a" for detokenised text, or "none" where both sides are tokenised already.
    """
    bleu = sacrebleu.BLEU(tokenize=bleu_tokenizer, force=bleu_tokenizer == "none")  # force: no warning that it is
    chrf = sacrebleu.CHRF()
    return Scores(
        bleu=bleu.corpus_score(list(translations), [list(references)]).score,
        chrf=chrf.corpus_score(list(translations), [list(references)]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def require_bleu_tokenizer(name: str) -> None:
    """Raise ValueError if sacrebleu has no tokenizer of that name."""
    if name not in sacrebleu.BLEU.TOKENIZERS:
        raise ValueError(f"bleu_tokenizer is {name!r}, accepted are {', '.join(sorted(sacrebleu.BLEU.TOKENIZERS))}")


@torch.inference_mode()
def mean_nll(model: Transformer | Recurrent, pairs: Sequence[Pair], tokenizer: Tokenizer) -> float:
    """Return the negative log-likelihood in nats per target token; exp of it is the perplexity.

    It leaves out pairs with an empty side, or with more tokens than the model has positions for.
    """
    device = model.embedding.weight.device
    counted = BatchConfig(max_sentence_tokens=model.config.max_positions, max_length_ratio=math.inf)
    examples = sorted(encode_pairs(pairs, counted, tokenizer.encode), key=lambda example: example.num_tokens)
    nll = num_tokens = 0.0
    for run in cut_batches(examples, _BATCH_TOKENS):
        batch = collate(run).to(device)
        states = model.decode(
            batch.target_inputs, model.encode(batch.source, batch.source_lengths), batch.source_lengths
        )
        loss = projected_cross_entropy(states, model.embedding.weight, batch.target_outputs, 0.0)
        nll += float(loss.nll)
        num_tokens += float(loss.num_tokens)
    return nll / num_tokens if num_tokens else math.nan


def translate_greedily(
    model: Transformer | Recurrent,
    texts: Sequence[str],
    tokenizer: Tokenizer,
    search: Callable[..., list[list[int]]] | None = None,
) -> list[str]:
    """Return greedy translations in the order of the texts; batched by length, by `greedy_search` or a quicker one.

    Texts and translations end where the model has no more positions.
    """
    device, max_positions = model.embedding.weight.device, model.config.max_positions
    ids = [_source_ids(text, tokenizer, max_positions) for text in texts]
    order = sorted((index for index in range(len(texts)) if ids[index]), key=lambda index: len(ids[index]))
    translations = [""] * len(texts)
    rows = _ROWS[device.type]
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        source = pad_sequence([torch.tensor(ids[index]) for index in chosen], batch_first=True, padding_value=PAD_ID)
        lengths = torch.tensor([len(ids[index]) for index in chosen], device=device)
        limit = min(2 * source.size(1) + 10, max_positions)
        found = (search or greedy_search)(model, source.to(device), lengths, limit)
        for index, tokens in zip(chosen, found, strict=True):
            translations[index] = tokenizer.decode(tokens)
    return translations


def _source_ids(text: str, tokenizer: Tokenizer, max_tokens: int) -> list[int]:
    """Ids of a text, or of as much of its beginning as fits; end-of-sentence is last."""
    ids = tokenizer.encode(text)
    return ids if len(ids) <= max_tokens else [*ids[: max_tokens - 1], EOS_ID]


def translate(model: Transformer | Recurrent, texts: Sequence[str], tokenizer: Tokenizer, beam_size: int) -> list[str]:
    """Return translations in the order of the texts; beam 1 is batched greedy search, more is the slow reference."""
    if beam_size == 1:
        return translate_greedily(model, texts, tokenizer)
    max_positions = model.config.max_positions
    config = BeamConfig(beam_size=beam_size, max_target_tokens=min(256, max_positions))
    translations = []
    for text in track(texts, description=f"beam {beam_size}"):
        ids = _source_ids(text, tokenizer, max_positions)
        translations.append(tokenizer.decode(beam_search(model, ids, config)[0].tokens) if ids else "")
    return translations


@app.command()
def main(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint directory, for instance RUN/average.")],
    data: Annotated[Path, typer.Option(help="Directory with dev/NAME.LANG.gz.")],
    sets: Annotated[
        list[str], typer.Option("--set", help="Development set, or A/B for DATA/A/B.LANG.gz; may be repeated.")
    ] = ["tatoeba_dev"],  # noqa: B006  # typer copies it
    beam_size: Annotated[
        int, typer.Option(min=1, help="1 is fast batched greedy search; more is the slow reference.")
    ] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="First sentences of each set only.")] = None,
    bleu_tokenizer: Annotated[
        str, typer.Option(help="sacrebleu's; none where the sets are tokenised already.")
    ] = "13a",
) -> None:
    """Print loss, BLEU and chrF of a checkpoint on development sets.

    Example: python -m model.evaluate runs/en-de/average --data DATA --set tatoeba_dev --beam-size 4 --limit 200
    """
    try:
        require_bleu_tokenizer(bleu_tokenizer)
        loaded = load_checkpoint(checkpoint)
        model, tokenizer = loaded.model().to(choose_device("auto" if beam_size == 1 else "cpu")), loaded.tokenizer()
        languages = Languages(source=loaded.meta.source_language, target=loaded.meta.target_language)
        pairs_of = {name: read_dev_set(data, name, languages)[:limit] for name in sets}
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    table = Table("set", "sentences", "nats/token", "BLEU", "chrF", title=f"{loaded.meta.name}, beam {beam_size}")
    scores = None
    for name, pairs in pairs_of.items():
        translations = translate(model, [pair.source for pair in pairs], tokenizer, beam_size)
        scores = score_translations(translations, [pair.target for pair in pairs], bleu_tokenizer)
        loss = mean_nll(model, pairs, tokenizer)
        table.add_row(name, str(len(pairs)), f"{loss:.3f}", f"{scores.bleu:.1f}", f"{scores.chrf:.1f}")
    console = Console()
    console.print(table)
    if scores:
        console.print(f"BLEU {scores.bleu_signature}\nchrF {scores.chrf_signature}", highlight=False)


if __name__ == "__main__":
    app(prog_name="python -m model.evaluate")
