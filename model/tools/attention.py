"""Attention made visible: what each head of a model looks at while it translates a sentence, as a picture.

    python -m model.tools.attention model/pretrained/en-de "The children play." --output attention.png

The command translates with the reference search, then runs the model once over the best hypothesis and draws, by layer
and head, the softmax(Q K^T / sqrt(d)) of each attention (Vaswani et al. 2017, figures 3 - 5).  Hooks see the inputs of
a layer, and `MultiHeadAttention.attend` gives its weights; the model stays as it is.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from torch import Tensor, nn

from model.checkpoint import load_checkpoint
from model.config import BOS_ID, EOS_ID
from model.files import writing
from model.recurrent import Recurrent
from model.search import BeamConfig, beam_search
from model.tokenizer import Tokenizer
from model.transformer import Transformer, watched

_WORD_START = "\u2581"  # SentencePiece puts it before a word
MAX_TOKENS = 40  # of source or target; more labels than that nobody reads

_TOKEN_INCHES = 0.14  # of a token in a panel: the least at which labels of 8 points stand apart
_MIN_PANEL_INCHES = 1.6
_LABEL_INCHES = 1.0  # beside and below the panels
_TITLE_INCHES = 0.35
_MIN_FIGURE_INCHES = 4.5
_TITLE_LETTERS = 7.5  # an inch, of a title

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class AttentionPart(StrEnum):
    """The three places of attention in figure 1 of the paper."""

    ENCODER = "encoder"
    DECODER = "decoder"
    CROSS = "cross"


TITLES = {
    AttentionPart.ENCODER: "Encoder self-attention: a source token looks at the source",
    AttentionPart.DECODER: "Decoder self-attention: before it writes a token, the decoder looks at what it has written",
    AttentionPart.CROSS: "Cross-attention: before it writes a token, the decoder looks at the source",
}


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """The weights of one part, and the tokens of both axes."""

    weights: Tensor  # [L, H, Q, M]: by layer and head; rows sum to 1
    queries: list[str]  # who looks
    memory: list[str]  # at what


@torch.inference_mode()
def attention_weights(
    model: Transformer | Recurrent, source: Sequence[int], target: Sequence[int]
) -> dict[AttentionPart, Tensor]:
    """Return the weights of every head while `target` (without begin and end of sentence) is written, by one pass.

    Returns:
        [L, H, S, S] of the encoder, [L, H, T + 1, T + 1] of the decoder, [L, H, T + 1, S] across, L layers of that
        side: row t is the step that writes target token t, the last one the step that ends the sentence.  A recurrent
        model has one head across and no other.

    Raises:
        ValueError: the model has no attention.
    """
    attentions = _attentions(model)
    with watched([attention for layers in attentions.values() for attention in layers]) as weights:
        model(torch.tensor([list(source)]), torch.tensor([len(source)]), torch.tensor([[BOS_ID, *target]]))
    return {part: torch.stack([weights[attention][0] for attention in layers]) for part, layers in attentions.items()}


def _attentions(model: Transformer | Recurrent) -> dict[AttentionPart, list[nn.Module]]:
    if isinstance(model, Recurrent):
        if model.attention is None:
            raise ValueError("this model has no attention")
        return {AttentionPart.CROSS: [model.attention]}
    return {
        AttentionPart.ENCODER: [layer.get_submodule("self_attention") for layer in model.encoder.layers],
        AttentionPart.DECODER: [layer.get_submodule("self_attention") for layer in model.decoder.layers],
        AttentionPart.CROSS: [layer.get_submodule("cross_attention") for layer in model.decoder.layers],
    }


def attention_maps(
    model: Transformer | Recurrent, tokenizer: Tokenizer, source: Sequence[int], target: Sequence[int]
) -> dict[AttentionPart, AttentionMap]:
    """Return `attention_weights` with readable tokens; a decoder row has the token that its step writes."""
    weights = attention_weights(model, source, target)
    read = readable(tokenizer.pieces(source))
    before, written = (readable(tokenizer.pieces(ids)) for ids in ([BOS_ID, *target], [*target, EOS_ID]))
    axes = {
        AttentionPart.ENCODER: (read, read),
        AttentionPart.DECODER: (written, before),
        AttentionPart.CROSS: (written, read),
    }
    return {part: AttentionMap(found, *axes[part]) for part, found in weights.items()}


def readable(pieces: Sequence[str]) -> list[str]:
    """Return pieces as labels; a piece inside a word begins with a dot: `play`, `·ing`."""
    return [f"·{piece}" if piece[0].isalnum() else piece.lstrip(_WORD_START) or "\u2423" for piece in pieces]


def draw(maps: dict[AttentionPart, AttentionMap], title: str, layer: int | None = None) -> Figure:
    """Draw a section for each part, in it a row for each layer (or for `layer` alone) and a column for each head."""
    rows = {part: [layer] if layer is not None else list(range(len(m.weights))) for part, m in maps.items()}
    sizes = {part: (_panel_inches(m.memory), _panel_inches(m.queries) + _TITLE_INCHES) for part, m in maps.items()}
    panels = max(maps[part].weights.size(1) * panel for part, (panel, _) in sizes.items())
    width = max(_MIN_FIGURE_INCHES, panels + _LABEL_INCHES)
    heights = [len(rows[part]) * panel + _LABEL_INCHES + _TITLE_INCHES for part, (_, panel) in sizes.items()]
    figure = Figure(figsize=(width, sum(heights) + 2 * _TITLE_INCHES), layout="constrained")
    columns = int(width * _TITLE_LETTERS)
    figure.suptitle(_broken(title, columns), fontsize=16, parse_math=False)  # a text may be about dollars
    sections = figure.subfigures(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
    for section, (part, attention) in zip(sections, maps.items(), strict=True):
        section.suptitle(_broken(TITLES[part], columns), fontsize=14)
        grid = section.subplots(len(rows[part]), attention.weights.size(1), squeeze=False, sharex=True, sharey=True)
        for (row, head), axes in np.ndenumerate(grid):
            number = rows[part][row]
            axes.set_title(f"layer {number + 1}, head {head + 1}", fontsize=9)
            axes.set_xticks(range(len(attention.memory)), attention.memory, rotation=90, fontsize=8, parse_math=False)
            axes.set_yticks(range(len(attention.queries)), attention.queries, fontsize=8, parse_math=False)
            axes.tick_params(length=0)
            axes.imshow(attention.weights[number, head].numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    return figure


def _broken(text: str, columns: int) -> str:
    """Return the lines of a text, the long ones broken at spaces."""
    return "\n".join([textwrap.fill(line, columns) for line in text.splitlines()])


def _panel_inches(tokens: Sequence[str]) -> float:
    """The side of a panel that has these tokens on its axis."""
    return max(_MIN_PANEL_INCHES, _TOKEN_INCHES * len(tokens))


@app.command()
def main(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint, or a bundle that kept its weights.")],
    sentence: Annotated[str, typer.Argument(help=f"To translate; at most {MAX_TOKENS} tokens.")],
    output: Annotated[Path, typer.Option(help="The picture, PNG.")] = Path("attention.png"),
    part: Annotated[AttentionPart | None, typer.Option(help="Only this one.")] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="Only this layer of the part.")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Of the search for the translation.")] = 4,
) -> None:
    """Draw what every attention head looks at while a sentence is translated."""
    try:
        loaded = load_checkpoint(checkpoint)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    model, tokenizer = loaded.model(), loaded.tokenizer()
    source = tokenizer.encode(sentence)
    if not 0 < len(source) <= MAX_TOKENS:
        raise typer.BadParameter(f"sentence has {len(source)} tokens, 1 to {MAX_TOKENS} can be drawn")
    config = BeamConfig(beam_size=beam_size, max_target_tokens=MAX_TOKENS)
    target = beam_search(model, source, config)[0].tokens
    title = f"{sentence}\n{tokenizer.decode(target)}"
    try:
        maps = attention_maps(model, tokenizer, source, target)
    except ValueError as error:
        raise typer.BadParameter(f"{checkpoint}: {error}") from error
    if part is not None and part not in maps:
        raise typer.BadParameter(f"--part is {part}, the model has {', '.join(maps)}")
    if part is None and layer is not None:
        raise typer.BadParameter(f"--layer {layer} needs --part: {', '.join(AttentionPart)}")
    if part is not None:
        maps = {part: maps[part]}
        num_layers = len(maps[part].weights)
        if layer is not None and layer > num_layers:
            raise typer.BadParameter(f"--layer is {layer}, the part {part} has {num_layers}")
    figure = draw(maps, title, None if layer is None else layer - 1)
    with writing(output) as out:
        figure.savefig(out, format=output.suffix.removeprefix(".") or None, dpi=100)
    print(f"{title}\n{output}")


if __name__ == "__main__":
    app(prog_name="python -m model.tools.attention")
