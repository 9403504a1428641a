"""Lines of texts of streams that wait until admission has room for them.

Those who wait in a line are served in the order in which they came, and nobody polls.  The texts of a line meet the
same limits, such as one caller's texts for one model in one class.  A refusal in one line says nothing about another
line.  The lines know neither the texts nor the room, so the waiters try, one after the other.  Each departure from
admission makes one offer; the lines get the first offer in round-robin order.  A waiter that is refused passes the
offer on to the next line.  A waiter that gets in passes it on within its own line, because there may be more room, and
then the first refusal ends the offer.  So a departure costs one refusal where as much gets in as has left, however
many lines there are.  No departure is lost: whoever got in will leave.

Example: line A has the waiters a1 and a2, line B has b1 and b2.  The caller of line A is at its own limit, and one
text has left.  The offer goes to a1, which is refused and passes it on.  b1 gets in and passes the offer to b2, which
is refused.  The offer was of use, so it ends.  The offer of the next departure goes to line A first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

Line = Hashable  # the name of a line


@dataclass(slots=True)
class Offer:
    """The chance to try again that a departure gives; it goes from line to line until somebody got in with it."""

    lines_left: int  # that have not had it
    was_of_use: bool = False  # somebody got in: the next refusal ends it


class WaitingLines:
    """The lines in front of admission."""

    def __init__(self) -> None:
        # The line that gets the next offer is the first one, and the first waiter of a line is found fast after many
        # have left.
        self._lines: OrderedDict[Line, OrderedDict[Waiter, None]] = OrderedDict()

    def has_line(self, line: Line) -> bool:
        """Whether somebody waits there already, so that a new text has to queue."""
        return line in self._lines

    def queue(self, line: Line) -> "Waiter":
        """Return a waiter at the end of the line: a context manager that leaves the line at its end."""
        waiter = Waiter(self, line)
        waiter.join()
        return waiter

    def departed(self) -> None:
        """Make an offer: something has left admission."""
        if self._lines:
            self.make(Offer(len(self._lines)))

    def make(self, offer: Offer) -> None:
        """Make an offer to the next line; it ends if every line has had it."""
        if offer.lines_left and self._lines:
            offer.lines_left -= 1
            line, waiters = next(iter(self._lines.items()))
            self._lines.move_to_end(line)
            next(iter(waiters)).call(offer)

    def add(self, waiter: "Waiter", line: Line) -> None:
        """Put a waiter at the end of its line."""
        self._lines.setdefault(line, OrderedDict())[waiter] = None

    def is_first(self, waiter: "Waiter", line: Line) -> bool:
        """Whether the waiter is the first of its line."""
        return next(iter(self._lines.get(line, ())), None) is waiter

    def remove(self, waiter: "Waiter", line: Line, offer: Offer | None) -> None:
        """Take a waiter out of its line; the next one gets its offer, and tries even without one."""
        was_first, waiters = self.is_first(waiter, line), self._lines[line]
        del waiters[waiter]
        if not waiters:
            del self._lines[line]
            if offer is not None:
                self.make(offer)
        elif was_first:  # nothing left admission, but the first of this line got in: it may try until it is refused
            next(iter(waiters)).call(offer or Offer(0, was_of_use=True))


class Waiter:
    """One text that waits in a line."""

    def __init__(self, lines: WaitingLines, line: Line) -> None:
        self._lines = lines
        self._line = line
        self._is_in_line = False
        self._call = asyncio.Event()
        self._offer: Offer | None = None  # that it was called with, or tries with

    def join(self) -> None:
        """Stand at the end of the line, unless it is in it already."""
        if not self._is_in_line:
            self._is_in_line = True
            self._call.clear()
            self._lines.add(self, self._line)

    async def turn(self, within_s: float | None = None) -> None:
        """Return when the waiter is first in line and was called.  A second call says that the try was refused.

        Args:
            within_s: the first in line waits no longer than this: some room comes back without a departure.
        """
        if self._offer is not None and not self._call.is_set():  # refused, and nothing has left meanwhile
            offer, self._offer = self._offer, None
            if not offer.was_of_use:
                self._lines.make(offer)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._call.wait()
        if not self._lines.is_first(self, self._line):
            await self._call.wait()
        self._call.clear()

    def call(self, offer: Offer) -> None:
        """Let the waiter try; one that tries now may try once more."""
        if self._offer is None:
            self._offer = offer
        else:  # it is worth as much as both
            self._offer.lines_left = max(self._offer.lines_left, offer.lines_left)
            self._offer.was_of_use = self._offer.was_of_use and offer.was_of_use
        self._call.set()

    def enter(self) -> None:
        """Leave the line because admission has let the text in; there may be room for others, too."""
        offer = self._offer or Offer(0)
        offer.was_of_use = not self._call.is_set()  # a departure while it tried is still to be of use
        self._leave(offer)

    def leave(self) -> None:
        """Give up waiting; after `enter`, and a second time, this does nothing."""
        self._leave(self._offer)

    def _leave(self, offer: Offer | None) -> None:
        self._offer = None
        if self._is_in_line:
            self._is_in_line = False
            self._lines.remove(self, self._line, offer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
