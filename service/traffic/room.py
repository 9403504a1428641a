"""Who waits until admission has room: in order, and nobody polls.

A line is for what meets the same limits, such as one client's texts for one model in one class: a refusal in one line
says nothing about another.  Knows neither what is waited for nor how much room there is.  When something leaves
admission, the first of each line tries; when it gets in, the next one tries.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from types import TracebackType
from typing import Self

Line = Hashable  # its name


class Room:
    """The lines in front of admission."""

    def __init__(self) -> None:
        self._lines: dict[Line, OrderedDict[Place, None]] = {}  # ordered: the first is found fast after many have left

    def has_line(self, line: Line) -> bool:
        """Whether somebody waits there already, so that who comes now has to queue."""
        return line in self._lines

    def queue(self, line: Line) -> "Place":
        """A place at the end of the line; leave it in any case (it is a context manager)."""
        place = Place(self, line)
        place.join()
        return place

    def add(self, place: "Place", line: Line) -> None:
        """Put a place at the end of its line."""
        self._lines.setdefault(line, OrderedDict())[place] = None

    def stands(self, place: "Place", line: Line) -> bool:
        """Whether the place is in its line."""
        return place in self._lines.get(line, ())

    def is_first(self, place: "Place", line: Line) -> bool:
        """Whether the place is the first of its line."""
        return next(iter(self._lines.get(line, ())), None) is place

    def departed(self) -> None:
        """Something has left admission."""
        for line in self._lines.values():
            next(iter(line)).call()

    def remove(self, place: "Place", line: Line) -> None:
        """Take a place out of its line; the next one may find room too."""
        if not self.stands(place, line):
            return
        was_first, places = self.is_first(place, line), self._lines[line]
        del places[place]
        if not places:
            del self._lines[line]
        elif was_first:
            next(iter(places)).call()


class Place:
    """One place in a line."""

    def __init__(self, room: Room, line: Line) -> None:
        self._room = room
        self._line = line
        self._call = asyncio.Event()

    def join(self) -> None:
        """Stand at the end of the line, unless it is in it already."""
        if not self._room.stands(self, self._line):
            self._call.clear()
            self._room.add(self, self._line)

    async def turn(self, within_s: float | None = None) -> None:
        """Return when it is worth trying: first in line, and something has left since the last turn.

        Args:
            within_s: who is first then need not wait any longer, as what is short comes back without a departure.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._call.wait()
        if not self._room.is_first(self, self._line):
            await self._call.wait()
        self._call.clear()

    def call(self) -> None:
        """Let it try."""
        self._call.set()

    def leave(self) -> None:
        """Give the place up, inside or not; a second call does nothing."""
        self._room.remove(self, self._line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
