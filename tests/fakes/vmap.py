"""A shortlist as CTranslate2's `vmap.txt`: source piece, tab, target pieces with blanks between."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from model.shortlist import Shortlist


def write_vmap(shortlist: Shortlist, path: Path, pieces: Sequence[str]) -> None:
    """Write the candidates of each piece; the line with an empty source is what is always allowed.

    Args:
        shortlist: candidates by source token.
        path: goes into the model's directory as `vmap.txt`; `use_vmap=True` turns it on.
        pieces: the vocabulary by id, none of them with a blank.
    """
    rows = [shortlist.entries[start:end] for start, end in pairwise(shortlist.offsets.tolist())]
    rules = zip(["", *pieces], [shortlist.always, *rows], strict=True)
    lines = [f"{source}\t{' '.join(pieces[token] for token in row)}\n" for source, row in rules if len(row)]
    path.write_text("".join(lines), encoding="utf-8")
