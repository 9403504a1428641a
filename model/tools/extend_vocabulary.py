"""A model with more pieces than it was trained with: the same pieces and weights, and new ones behind them.

New are characters that have no piece, the 256 bytes, in which every other character is spelled, and the sentinels,
which stand in for spans that no model should change.  The old ids stay, so that training goes on.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when imported
from torch import Tensor

from model.checkpoint import TOKENIZER, load_checkpoint, save_checkpoint
from model.config import VOCABULARY_MULTIPLE
from model.files import write_whole
from model.pieces import SENTINELS, load_processor

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)

# Printable ASCII, currencies and typographic signs; then letters of European languages, the last of which are left out
# where the vocabulary would exceed a multiple of 64.
NEW_CHARACTERS = (
    "".join(map(chr, range(0x21, 0x7F)))
    + "€£¥¢₹₽₩₺₿¤§©®°±×÷·•–—‘’‚“”„«»‹›†‡¿¡←↑→↓⇒≈≠≤≥−√∞μ⁄✓★♥"  # noqa: RUF001  # all of them are meant
    + "éèáàâãåæçêëíìîïñóòôõøúùûýžščćěřłńśźżąęőűğışœÿÉÈÁÀÅÆÇÊÍÎÓØÔÚÑŠŽČŁŚŻİŞ"
)
_NOISE = 0.3  # of a new embedding around the mean of the old ones, in their standard deviations


def extend_pieces(old: Path, new: Path, characters: str = NEW_CHARACTERS) -> int:
    """Write the SentencePiece model `old` with new pieces behind its own as `new`; return the number of all pieces.

    Raises:
        ValueError: `old` is no SentencePiece model, or has bytes or sentinels already.
    """
    normalize = load_processor(old).normalize
    proto = ModelProto.FromString(old.read_bytes())
    piece = ModelProto.SentencePiece
    known = {entry.piece for entry in proto.pieces}
    if proto.trainer_spec.byte_fallback or known.intersection(SENTINELS):
        raise ValueError(f"tokenizer {old} has bytes or sentinels already")
    # What normalisation changes never reaches the pieces.  `Tokenizer.read_back` knows new ones by their type.
    missing = [one for one in dict.fromkeys(characters) if one not in known and normalize(one).endswith(one)]
    excess = (len(known) + len(missing) + 256 + len(SENTINELS)) % VOCABULARY_MULTIPLE
    rarest = min(entry.score for entry in proto.pieces)
    if excess <= len(missing):
        missing = missing[: len(missing) - excess]
    proto.pieces.extend(piece(piece=one, score=rarest, type=piece.USER_DEFINED) for one in missing)
    proto.pieces.extend(piece(piece=f"<0x{byte:02X}>", score=0.0, type=piece.BYTE) for byte in range(256))
    proto.pieces.extend(piece(piece=one, score=0.0, type=piece.USER_DEFINED) for one in SENTINELS)
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.vocab_size = len(proto.pieces)
    write_whole(new, proto.SerializeToString())
    return len(proto.pieces)


def extend_embedding(embedding: Tensor, num_pieces: int, seed: int = 1) -> Tensor:
    """Return an embedding [V, D] with further rows near the mean of its own, which no text makes likely."""
    noise = torch.randn(num_pieces - len(embedding), embedding.size(1), generator=torch.Generator().manual_seed(seed))
    return torch.cat([embedding, embedding.mean(0) + _NOISE * embedding.std(0) * noise])


@app.command()
def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint, or a bundle that kept its weights.")],
    out: Annotated[Path, typer.Option(help="Directory of the checkpoint that is made.")],
) -> None:
    """Append printable ASCII, signs, bytes and sentinels to a model's vocabulary.

    Example: python -m model.tools.extend_vocabulary RUN/average --out EXTENDED
    """
    if out.exists():
        raise typer.BadParameter(f"{out} exists already: choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = out.with_name(f".{out.name}.{TOKENIZER}")
    try:
        old = load_checkpoint(model)
        num_pieces = extend_pieces(old.tokenizer_path, tokenizer)
        config = replace(old.config, vocab_size=num_pieces)
        weights = old.weights | {"embedding.weight": extend_embedding(old.weights["embedding.weight"], num_pieces)}
        save_checkpoint(out, replace(old, config=config, weights=weights, tokenizer_path=tokenizer))
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    finally:
        tokenizer.unlink(missing_ok=True)
    console.log(f"{out}: {num_pieces:,} pieces instead of {old.config.vocab_size:,}")


if __name__ == "__main__":
    app(prog_name="python -m model.tools.extend_vocabulary")
