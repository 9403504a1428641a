"""The part of the target vocabulary that the live sentences of a group may use, as the shortlist graph reads it.

One set of columns, the union of their shortlists, serves all sentences of the group; a mask keeps each sentence to its
own.  The tokens a sentence may use do not depend on the others; the sum of the softmax runs over all columns, so the
last bits of its scores do.  Columns are added as sentences come; when there is no room, they are laid out anew for the
sentences that still live.

Axes: B sentences, N columns, D width, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model.shortlist import Shortlist
from service.engine.steering import Edits

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

FORBIDDEN = np.float32(-np.inf)  # added to the logits of tokens that are not on a sentence's list
COLUMNS = 64  # they come in multiples of this: the width of a block in the graph's ranking
_SPARE = 1 / 8  # share of the columns that is left free, at least, for sentences that join others


class Projection(NamedTuple):
    """Rows of the output projection."""

    rows: npt.NDArray[np.generic]  # [V, D]
    scales: Floats | None  # [V]: what makes integers floats again
    bias: Floats | None = None  # [V]: added to the logits


class LiveVocabulary:
    """Columns of the projection and which sentence may use which.

    They lie at the beginning of larger memories, which seldom move.
    """

    def __init__(self, shortlist: Shortlist, projection: Projection) -> None:
        self.generation = 0  # changes whenever the memory does
        self.num_columns = 0  # N
        self._shortlist = shortlist
        self._projection = projection
        self._lists: list[Ints] = []  # by sentence
        self._num_used = 0
        self._column_of = np.full(shortlist.vocab_size, -1)
        self._tokens = np.zeros(0, np.int64)
        self._weights = np.zeros(0, projection.rows.dtype)
        self._scales = np.zeros(0, np.float32)
        self._masks = np.zeros(0, np.float32)
        self._reserve(0)

    @property
    def mask(self) -> Floats:
        """[B, 1, N]: the bias of the tokens of a sentence's list, `FORBIDDEN` for others."""
        num_sentences = len(self._lists)
        return self._masks[: num_sentences * self.num_columns].reshape(num_sentences, 1, self.num_columns)

    def append(self, sources: Sequence[Sequence[int]]) -> None:
        """Start sentences with these source ids."""
        lists = [self._shortlist.candidates(source) for source in sources]
        wanted = np.unique(np.concatenate(lists))
        added = wanted[self._column_of[wanted] < 0]
        first = len(self._lists)
        self._lists += lists
        if first == 0 or self._num_used + added.size > self.num_columns:
            self._lay_out()
            return
        self._fill(added)
        self._reserve(self.num_columns)
        for index in range(first, len(self._lists)):
            self._set_mask(index)

    def remove(self, index: int) -> None:
        """Forget a sentence; the last one takes its number."""
        last = len(self._lists) - 1
        self._lists[index] = self._lists[last]
        self.mask[index] = self.mask[last]
        self._lists.pop()

    def in_columns(self, edits: Edits) -> Edits:
        """Return the edits with columns in place of tokens; those of tokens without a column concern no sentence."""
        columns = self._column_of[edits.tokens]
        has_column = columns >= 0
        rows, values, factors = edits.rows[has_column], edits.values[has_column], edits.factors[has_column]
        return Edits(rows, columns[has_column], values, factors)

    def _lay_out(self) -> None:
        """Give columns to the tokens of the live sentences alone, and leave room for more."""
        union = np.unique(np.concatenate(self._lists))
        wanted = union.size if len(self._lists) == 1 else int(union.size * (1 + _SPARE))
        num_blocks, most_blocks = -(-wanted // COLUMNS), -(-self._shortlist.vocab_size // COLUMNS)
        self._reserve(min(_coarsely(num_blocks), most_blocks) * COLUMNS)
        self.tokens[:] = self._shortlist.always[0]  # of columns that nobody may use: any token
        self._column_of.fill(-1)
        self._num_used = 0
        self._fill(union)
        for index in range(len(self._lists)):
            self._set_mask(index)

    def _reserve(self, num_columns: int) -> None:
        """Make room for so many columns and all sentences; what columns held is lost when their number changes."""
        width, num_masks = self._projection.rows.shape[1], len(self._lists) * num_columns
        if num_columns > self._tokens.size:
            capacity = 2 * num_columns
            self._tokens, self._scales = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
            self._weights = np.zeros(width * capacity, self._projection.rows.dtype)
            self.generation += 1
        if num_masks > self._masks.size:
            self._masks = np.concatenate([self._masks, np.zeros(2 * num_masks - self._masks.size, np.float32)])
            self.generation += 1
        self.num_columns = num_columns
        self.tokens = self._tokens[:num_columns]  # [N]: the token of each column
        self.weights = self._weights[: width * num_columns].reshape(width, num_columns)  # [D, N]
        has_scales = self._projection.scales is not None  # or the columns are no integers
        self.scales = self._scales[:num_columns] if has_scales else None  # [N]

    def _fill(self, tokens: Ints) -> None:
        """Give tokens the next columns."""
        new = slice(self._num_used, self._num_used + tokens.size)
        self.tokens[new] = tokens
        self.weights[:, new] = self._projection.rows[tokens].T
        if self._projection.scales is not None:
            self._scales[new] = self._projection.scales[tokens]
        self._column_of[tokens] = np.arange(new.start, new.stop)
        self._num_used = new.stop

    def _set_mask(self, index: int) -> None:
        mask = self.mask[index, 0]
        mask.fill(FORBIDDEN)
        tokens, bias = self._lists[index], self._projection.bias
        mask[self._column_of[tokens]] = 0.0 if bias is None else bias[tokens]


def _coarsely(number: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...

    There are few different widths, as the runner makes a binding for each width that it meets with new other shapes,
    which took 5 % of the time with 16 sentences.
    """
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if number <= power * 3 // 4 and power > 2 else power
