"""Which engine takes which of the sentences that start together: the long ones one, the short ones another.

Beside the work for each sentence, an engine's step has a part that costs the same however many there are, and attention
is computed as wide as the longest sentence.  Sentences of similar length together need fewer steps in all, and no
padding.  Pure; knows lengths, neither engines nor texts.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self

from service.engine.job import Job
from service.engine.scheduler import source_width


class Share(NamedTuple):
    """A sentence that is dealt."""

    source_tokens: int
    rows: int  # its beam

    @classmethod
    def of(cls, job: Job) -> Self:
        """The job's sentence."""
        return cls(len(job.source_ids), job.params.beam_size)

    @property
    def source_width(self) -> int:
        """Source tokens that it takes of an engine's budget."""
        return source_width(self.source_tokens)

    @property
    def work(self) -> int:
        """What it costs an engine, in no unit: its steps are about as many as its source tokens."""
        return self.source_tokens * self.rows


class Room(NamedTuple):
    """What an engine has, and can take; below 0 it holds more than it can run."""

    work: int
    free_rows: int
    free_tokens: int


def deal(shares: Sequence[Share], rooms: Sequence[Room]) -> list[int] | None:
    """The number of the room for each share, such that the fullest one has as little work as possible.

    Each room gets neighbours in length, the emptiest the longest, and none stays empty while another gets several.  The
    longest of a room counts twice, once for the steps themselves, whose number it determines (ARCHITECTURE.md, 22
    November 2026, has what others than 2 came to).

    Returns:
        None if not all find rows and source tokens this way.
    """
    if sum(share.rows for share in shares) > sum(max(0, room.free_rows) for room in rooms):
        return None  # without sorting: many wait for rows, and ask again whenever some are free
    longest_first = sorted(range(len(shares)), key=lambda number: -shares[number].source_tokens)
    emptiest_first = sorted(range(len(rooms)), key=lambda number: rooms[number].work)
    cuts = _Cuts([shares[number] for number in longest_first], [rooms[number] for number in emptiest_first])
    ends = cuts.with_the_least_work()
    if ends is None:
        return None
    dealt, begin = [0] * len(shares), 0
    for number, end in zip(emptiest_first, ends, strict=True):
        for place in longest_first[begin:end]:
            dealt[place] = number
        begin = end
    return dealt


class _Cuts:
    """Ways to cut a row of shares, longest first, into a piece for each room, emptiest first."""

    def __init__(self, shares: Sequence[Share], rooms: Sequence[Room]) -> None:
        self._shares, self._rooms = shares, rooms
        self._work = [0, *accumulate(share.work for share in shares)]  # of the first n
        self._rows = [0, *accumulate(share.rows for share in shares)]
        self._tokens = [0, *accumulate(share.source_width for share in shares)]
        self._num_empty = sum(room.work == 0 and room.free_rows > 0 for room in rooms)

    def with_the_least_work(self) -> list[int] | None:
        """Where each room's piece ends, such that the largest sum of work is least."""
        too_little = 0
        enough = 2 * self._work[-1] + self._rooms[-1].work
        best = self._within(enough)
        while best is not None and enough - too_little > 1:
            limit = (too_little + enough) // 2
            found = self._within(limit)
            if found is None:
                too_little = limit
            else:
                best, enough = found, limit
        return best

    def _within(self, limit: int) -> list[int] | None:
        """Where each piece ends when every room takes what it may and no room's work exceeds the limit."""
        ends, end = list[int](), 0
        for place, room in enumerate(self._rooms):
            end = self._end(end, place, room, limit)
            ends.append(end)
        return ends if end == len(self._shares) else None

    def _end(self, begin: int, place: int, room: Room, limit: int) -> int:
        """Where the piece ends that begins here."""
        if begin == len(self._shares):
            return begin
        longest = self._shares[begin].work
        by_work = bisect_right(self._work, limit - room.work - longest + self._work[begin]) - 1
        by_rows = bisect_right(self._rows, room.free_rows + self._rows[begin]) - 1
        by_tokens = bisect_right(self._tokens, room.free_tokens + self._tokens[begin]) - 1
        end = min(by_work, by_rows, by_tokens)
        if end <= begin:
            return begin
        still_empty = max(0, self._num_empty - place - 1)  # rooms behind this one, of which each gets one at least
        return min(end, max(begin + 1, len(self._shares) - still_empty))
