"""Who waits until admission has room: in lines, each in order, and nobody polls.

A line is for what meets the same limits, such as one client's texts for one model in one class: a refusal in one line
says nothing about another.  Knows neither what is waited for nor how much room there is, so one after the other tries:
what leaves admission gives one line a turn, each time another.  Who is refused passes the turn on to the next line; who
gets in gives it to the next of its own, as there may be more room, and then the first refusal ends it.  A departure so
costs one refusal where as much gets in as left, however many lines there are; and is lost on nobody, as who got in
will leave.

Two lines, A with a1 and a2, B with b1 and b2; the client of line A is at its own limit, and one text has left.  The
turn goes to a1, who is refused and passes it on.  b1 gets in, and gives it to b2, who is refused: the turn has been of
use, and ends.  The next departure's goes to line A first again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

Line = Hashable  # its name


@dataclass(slots=True)
class Turn:
    """What a departure gives: it goes round until it has been of use."""

    lines_left: int  # that it may still be offered to
    was_of_use: bool = False  # somebody got in: the next refusal ends it

    @classmethod
    def until_refused(cls) -> Self:
        """One for a single line: nobody left admission, but who was first there did."""
        return cls(0, was_of_use=True)

    def renew(self, other: "Turn") -> None:
        """Become worth as much as the other one, too."""
        self.lines_left = max(self.lines_left, other.lines_left)
        self.was_of_use = self.was_of_use and other.was_of_use


class WaitingLines:
    """The lines in front of admission."""

    def __init__(self) -> None:
        # The line whose turn is next is the first one, and the place that is first in it is found fast after many have
        # left.
        self._lines: OrderedDict[Line, OrderedDict[Place, None]] = OrderedDict()

    def has_line(self, line: Line) -> bool:
        """Whether somebody waits there already, so that who comes now has to queue."""
        return line in self._lines

    def queue(self, line: Line) -> "Place":
        """A place at the end of the line; leave it in any case (it is a context manager)."""
        place = Place(self, line)
        place.join()
        return place

    def departed(self) -> None:
        """Something has left admission."""
        self.offer(Turn(len(self._lines)))

    def offer(self, turn: Turn) -> None:
        """Give a turn to the line that is next; it ends if every line has had it."""
        if turn.lines_left and self._lines:
            turn.lines_left -= 1
            line, places = next(iter(self._lines.items()))
            self._lines.move_to_end(line)
            next(iter(places)).call(turn)

    def add(self, place: "Place", line: Line) -> None:
        """Put a place at the end of its line."""
        self._lines.setdefault(line, OrderedDict())[place] = None

    def stands(self, place: "Place", line: Line) -> bool:
        """Whether the place is in its line."""
        return place in self._lines.get(line, ())

    def is_first(self, place: "Place", line: Line) -> bool:
        """Whether the place is the first of its line."""
        return next(iter(self._lines.get(line, ())), None) is place

    def remove(self, place: "Place", line: Line, turn: Turn | None) -> None:
        """Take a place out of its line; the next one has its turn, and tries also where there was none."""
        was_first, places = self.is_first(place, line), self._lines[line]
        del places[place]
        if not places:
            del self._lines[line]
            if turn is not None:
                self.offer(turn)
        elif was_first:
            next(iter(places)).call(turn or Turn.until_refused())


class Place:
    """One place in a line."""

    def __init__(self, lines: WaitingLines, line: Line) -> None:
        self._lines = lines
        self._line = line
        self._call = asyncio.Event()
        self._turn: Turn | None = None  # that it has been called with, or tries with

    def join(self) -> None:
        """Stand at the end of the line, unless it is in it already."""
        if not self._lines.stands(self, self._line):
            self._call.clear()
            self._lines.add(self, self._line)

    async def turn(self, within_s: float | None = None) -> None:
        """Return when it is worth trying: first in line, and its turn; to ask again says that it was refused.

        Args:
            within_s: who is first then need not wait any longer, as what is short comes back without a departure.
        """
        self._pass_on()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._call.wait()
        if not self._lines.is_first(self, self._line):
            await self._call.wait()
        self._call.clear()

    def call(self, turn: Turn) -> None:
        """Let it try, and once more if it is trying."""
        if self._turn is None:
            self._turn = turn
        else:
            self._turn.renew(turn)
        self._call.set()

    def enter(self) -> None:
        """Leave the line for admission: there may be room for others, too."""
        turn = self._turn or Turn(0)
        turn.was_of_use = not self._call.is_set()  # a departure while it tried is still to be of use
        self._leave(turn)

    def leave(self) -> None:
        """Give the place up; after `enter`, and a second time, this does nothing."""
        self._leave(self._turn)

    def _leave(self, turn: Turn | None) -> None:
        self._turn = None
        if self._lines.stands(self, self._line):
            self._lines.remove(self, self._line, turn)

    def _pass_on(self) -> None:
        """It was refused, unless something has left meanwhile and it has another try."""
        if self._turn is not None and not self._call.is_set():
            turn, self._turn = self._turn, None
            if not turn.was_of_use:
                self._lines.offer(turn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
