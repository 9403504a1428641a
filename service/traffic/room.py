"""Who waits until admission has room: in order, a line for each client, and nobody polls.

Knows neither what is waited for nor how much room there is.  When something leaves admission, the first of each line
tries; when it gets in, the next one tries.
"""

import asyncio
from collections import OrderedDict
from types import TracebackType
from typing import Self


class Room:
    """The lines in front of admission."""

    def __init__(self) -> None:
        self._lines: dict[str, OrderedDict[Place, None]] = {}  # ordered: the first is found fast after many have left

    def has_line(self, client: str) -> bool:
        """Whether somebody of this client waits already, so that who comes now has to queue."""
        return client in self._lines

    def queue(self, client: str) -> "Place":
        """A place at the end of the client's line; leave it in any case (it is a context manager)."""
        place = Place(self, client)
        self._lines.setdefault(client, OrderedDict())[place] = None
        return place

    def departed(self) -> None:
        """Something has left admission."""
        for line in self._lines.values():
            next(iter(line)).call()

    def remove(self, place: "Place", client: str) -> None:
        """Take a place out of its line; the next one may find room too."""
        line = self._lines.get(client, OrderedDict())
        if place not in line:
            return
        was_first = next(iter(line)) is place
        del line[place]
        if not line:
            del self._lines[client]
        elif was_first:
            next(iter(line)).call()


class Place:
    """One place in a line."""

    def __init__(self, room: Room, client: str) -> None:
        self._room = room
        self._client = client
        self._call = asyncio.Event()

    async def turn(self) -> None:
        """Return when it is worth trying: first in line, and something has left since the last turn."""
        await self._call.wait()
        self._call.clear()

    def call(self) -> None:
        """Let it try."""
        self._call.set()

    def leave(self) -> None:
        """Give the place up, inside or not; a second call does nothing."""
        self._room.remove(self, self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
