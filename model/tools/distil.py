"""A corpus of what a model says to the sentences of a recipe's corpora, for a smaller model to learn from.

Sequence-level distillation (Kim & Rush 2016, section 3.2), with greedy search.  Read the other way round, the pairs are
back-translations for a model of the other direction (Sennrich et al. 2016).
"""

from functools import partial
from pathlib import Path
from typing import Annotated, cast

import torch
import typer
from rich.console import Console
from rich.progress import track
from torch import Tensor

from model.checkpoint import load_checkpoint
from model.corpus import Pair, read_corpus
from model.evaluate import translate_greedily
from model.layers import MultiHeadAttention, padding_mask
from model.optimizer import FASTEST, choose_device, choose_precision
from model.recipe import Languages, load_recipe
from model.tools.diversify import write_corpus
from model.transformer import DecoderLayer, Transformer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)

_SENTENCES = 32_768  # between two looks at the progress bar; sentences of similar length are translated together


@torch.inference_mode()
def quick_greedy_search(model: Transformer, source: Tensor, lengths: Tensor, max_target_tokens: int) -> list[list[int]]:
    """Return what `greedy_search` returns, with the keys and values of earlier steps kept instead of computed again."""
    end = model.config.eos_id
    memory, mask = model.encode(source, lengths), padding_mask(lengths, source.size(1))
    layers = [cast(DecoderLayer, layer) for layer in model.decoder.layers]
    cross = [layer.cross_attention.keys_and_values(memory) for layer in layers]
    own: list[tuple[Tensor, Tensor] | None] = [None] * len(layers)
    tokens = torch.full((source.size(0), 1), model.config.start_id, device=source.device)  # [B, 1 + T]
    is_done = torch.zeros(source.size(0), dtype=torch.bool, device=source.device)

    def own_attention(number: int, newest: Tensor) -> Tensor:
        attention = layers[number].self_attention
        assert isinstance(attention, MultiHeadAttention), "a recurrent unit keeps no keys"
        new, past = attention.keys_and_values(newest), own[number]
        kept = new if past is None else (torch.cat([past[0], new[0]], dim=2), torch.cat([past[1], new[1]], dim=2))
        own[number] = kept
        return attention.mix(newest, *kept, None)

    for _ in range(max_target_tokens):
        states = model.embed(tokens, model.get_submodule(model.config.target_table), model.decoder)[:, -1:]
        for number, layer in enumerate(layers):
            states = layer.residual(states, layer.self_attention_norm, partial(own_attention, number))
            source_attention = partial(
                layer.cross_attention.mix, keys=cross[number][0], values=cross[number][1], mask=mask
            )
            states = layer.residual(states, layer.cross_attention_norm, source_attention)
            states = layer.residual(states, layer.feed_forward_norm, layer.feed_forward)
        chosen = model.project(model.decoder.norm(states)[:, 0]).argmax(dim=-1).masked_fill(is_done, end)
        tokens = torch.cat([tokens, chosen.unsqueeze(1)], dim=1)
        is_done |= chosen == end
        if is_done.all():
            break
    return [row[: row.index(end)] if end in row else row for row in tokens[:, 1:].tolist()]


@app.command()
def main(
    teacher: Annotated[Path, typer.Argument(help="Checkpoint directory, for instance RUN/average.")],
    recipe: Annotated[Path, typer.Option(help="Recipe whose corpora's source sentences are translated.")],
    data: Annotated[Path, typer.Option(help="Directory with train/NAME/NAME.LANG.gz.")],
    out: Annotated[Path, typer.Option(help="Directory of the new corpus, which takes its name.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
) -> None:
    """Write a corpus of a teacher's translations.

    Example: python -m model.tools.distil TEACHER/average --recipe model/recipes/en-de-teacher.toml --data CLEAN
    --out CLEAN/train/en-said
    """
    try:
        where = choose_device(device)
        loaded, corpora = load_checkpoint(teacher), load_recipe(recipe)
        languages = Languages(source=loaded.meta.source_language, target=loaded.meta.target_language)
        pairs = [pair for corpus in corpora.corpora for pair in read_corpus(data, corpus, languages, corpora.seed)]
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    model = loaded.model().to(where)
    if not isinstance(model, Transformer) or model.config.relative_distance:
        raise typer.BadParameter(f"{teacher} is no Transformer with a position table, as training makes them")
    known, sentences = set(pairs), sorted({pair.source for pair in pairs}, key=len)
    tokenizer, precision = loaded.tokenizer(), choose_precision(FASTEST, where)
    said: list[Pair] = []
    with torch.autocast(where.type, precision, enabled=precision is not torch.float32):
        for start in track(range(0, len(sentences), _SENTENCES), "translating", console=console, transient=True):
            texts = sentences[start : start + _SENTENCES]
            said += map(Pair, texts, translate_greedily(model, texts, tokenizer, quick_greedy_search))
    count = write_corpus(out, (pair for pair in said if pair.target and pair not in known), languages)
    console.log(f"{out}: {count:,} new pairs of {len(sentences):,} sentences")


if __name__ == "__main__":
    app(prog_name="python -m model.tools.distil")
