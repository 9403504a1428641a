"""The classes of work as they are called on the wire and in files of API keys."""

from protos import translation_pb2 as pb
from service.queue.callers import Priority

_ON_WIRE = {Priority.INTERACTIVE: pb.PRIORITY_INTERACTIVE, Priority.BATCH: pb.PRIORITY_BATCH}
_OF_WIRE: dict[int, Priority] = {number: priority for priority, number in _ON_WIRE.items()}
_NAMES = {priority: priority.name.lower() for priority in Priority}
_BY_NAME = {name: priority for priority, name in _NAMES.items()}


def from_wire(number: int) -> Priority | None:
    """The class that a message asks for; None if it does not say, or names one of a later version."""
    return _OF_WIRE.get(number)


def to_wire(priority: Priority | None) -> pb.Priority:
    """How a message asks for this class; None: it does not say."""
    return pb.PRIORITY_UNSPECIFIED if priority is None else _ON_WIRE[priority]


def name_of(priority: Priority) -> str:
    """What this class is called: "interactive" or "batch"."""
    return _NAMES[priority]


def named(name: str) -> Priority:
    """The class of this name, "interactive" or "batch"."""
    return _BY_NAME[name]
