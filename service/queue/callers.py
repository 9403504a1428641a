"""Who a call comes from, as far as sharing the server is concerned.

How that is found out (API key, a trusted proxy's word, the peer's address) is the edge's business.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Identity = tuple[str, str]  # source and name: a proxy's word "10.0.0.7" is not the peer 10.0.0.7


class Priority(IntEnum):
    """Which work goes first; a lower number goes before a higher one."""

    INTERACTIVE = 0
    BATCH = 1

    @property
    def label(self) -> str:
        """The name of the class in metrics and files: "interactive" or "batch"."""
        return _LABELS[self]


_LABELS = {priority: priority.name.lower() for priority in Priority}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One party among those that share the server."""

    name: str  # stable: an API key's name, the proxy's word, or the peer's address without its port
    source: Literal["key", "proxy", "peer"] = "peer"
    priority: Priority = Priority.INTERACTIVE  # the highest it may ask for
    weight: float = 1.0  # its share beside others: twice the weight, twice the share
    max_queued_tokens: int | None = None  # of its admitted texts without an answer; None: the server's limit alone

    @property
    def identity(self) -> Identity:
        """Who it is among all clients; a name alone can be that of two."""
        return (self.source, self.name)

    def allowed(self, asked: Priority | None) -> Priority:
        """The class of its work: what it asks for, or the highest it may have if that is lower or it does not say."""
        return self.priority if asked is None else max(asked, self.priority)


ANYBODY = Caller(name="")
