"""Which cells are raced: the usual programme, or every combination of what the user chose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tests.bench.race.cells import CTRANSLATE2, HUGGING_FACE, Cell

OTHER_BEAMS = (1, 5)
GPU_SIZES = (32, 256, 1_024)
LARGE_SIZE = 256  # CTranslate2 batches by itself: this is what it can choose from


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the user asked for; nothing for a field means what the programme has."""

    texts: Sequence[str]
    shapes: Sequence[str] = ()
    precisions: Sequence[str] = ()
    beams: Sequence[int] = ()
    regimes: Sequence[str] = ()
    sizes: Sequence[int] = ()
    shortlists: Sequence[str] = ()
    peers: Sequence[str] = (CTRANSLATE2,)
    has_shortlist: bool = False

    @classmethod
    def on_gpu(cls, choice: "Choice") -> "Choice":
        """The same on a GPU: all sides in half precision, and larger batches."""
        return replace(choice, precisions=("fp16",), sizes=choice.sizes or GPU_SIZES)

    @property
    def is_usual(self) -> bool:
        """Whether only texts, shapes and peers were chosen."""
        return not (self.precisions or self.beams or self.regimes or self.sizes or self.shortlists)


def cells(choice: Choice) -> list[Cell]:
    """The cells in the order in which they run."""
    pairs = product(choice.texts, choice.shapes or ("default", "base"))
    starts = [Cell(text=text, shape=shape) for text, shape in pairs]
    if not choice.is_usual:
        return [cell for start in starts for cell in combinations(start, choice)]
    return [
        cell
        for start in starts
        for cell in usual(start)
        if cell.peer in choice.peers and (cell.shortlist == "none" or choice.has_shortlist)
    ]


def usual(start: Cell) -> list[Cell]:
    """Everything at beam 4, the other beams in a closed batch only, streams in int8 only.

    Large batches and Hugging Face with the default only: with the larger model each takes minutes and says no more.
    """
    int8, fp32 = (replace(start, precision=precision) for precision in ("int8", "fp32"))
    return [
        *(replace(cell, regime=regime) for cell in (int8, fp32) for regime in ("single", "closed")),
        *(replace(int8, beam_size=beam_size) for beam_size in OTHER_BEAMS),
        replace(int8, regime="stream"),
        *(replace(int8, regime=regime, shortlist=who) for who in ("ours", "both") for regime in ("single", "closed")),
        *(_of_default(int8, fp32) if start.shape == "default" else ()),
    ]


def _of_default(int8: Cell, fp32: Cell) -> list[Cell]:
    return [
        replace(int8, size=LARGE_SIZE),
        *(replace(fp32, regime=regime, peer=HUGGING_FACE) for regime in ("single", "closed")),
    ]


def combinations(start: Cell, choice: Choice) -> list[Cell]:
    """All of what was chosen; sizes matter to closed batches only."""
    every = product(
        choice.precisions or ("int8", "fp32"),
        choice.beams or (start.beam_size,),
        choice.regimes or ("single", "closed", "stream"),
        choice.sizes or (start.size,),
        choice.shortlists or (start.shortlist,),
        choice.peers,
    )
    fields = ("precision", "beam_size", "regime", "size", "shortlist", "peer")
    found = [replace(start, **dict[str, Any](zip(fields, values, strict=True))) for values in every]
    wanted = [cell for cell in found if not (cell.peer == HUGGING_FACE and cell.regime == "stream" and len(found) > 1)]
    return list(dict.fromkeys(cell if cell.regime == "closed" else replace(cell, size=start.size) for cell in wanted))
