"""What an edge process and the core say to each other, in the frames of `engine/job.py`.

    core -> edge    EdgeSpec, then Offer, ServingState, Answer, Room, StreamAnswer, Departed, Ask, SetLevel, Finish
    edge -> core    Ready or StartFailed, then Run, Question, Cancel, OpenStream, CloseStream, Counted, Calls, Switched,
                    Unused, Idle, Finished

Calls cross in token ids.  Both sides read the same clock, time.monotonic(), which all processes of a machine share.
"""

from pathlib import Path
from typing import NamedTuple

from service.call import Call, Caller, Identity
from service.config import ServerConfig
from service.errors import DragomanError, Unavailable
from service.records import ModelInfo, Priority
from service.registry.catalogue import Work
from service.telemetry.metrics import Snapshot
from service.translation.account import Usage


class EdgeSpec(NamedTuple):
    """What an edge process is told first."""

    config: ServerConfig  # with the ports that the core has reserved
    offer: "Offer"
    state: "ServingState"


class OfferedModel(NamedTuple):
    """A model that calls can ask for."""

    number: int  # of its host
    info: ModelInfo
    bundle_dir: Path
    manifest_sha256: str
    is_loaded: bool  # in the core


class Offer(NamedTuple):
    """Have later calls find these models, the first of which is the default, and no others."""

    version: int  # of the list: it grows
    models: tuple[OfferedModel, ...]


class Switched(NamedTuple):
    """Later calls find the models of this offer."""

    version: int


class Unused(NamedTuple):
    """No call of this edge uses this model any more, which the last offer has not."""

    model: int


class ServingState(NamedTuple):
    """What an edge says of the whole server from now on."""

    is_serving: bool  # in health
    is_draining: bool = False  # in health, which then says NOT_SERVING for ever
    refusal: Unavailable | None = None  # of every new call; None: calls are let in


class Run(NamedTuple):
    """Translate one call's texts."""

    number: int  # of the run, among those of this edge
    model: int  # number of its host
    work: Work
    caller: Caller
    priority: Priority
    deadline: float
    limit_s: float | None
    started: float
    method: str
    request_id: str
    characters: int  # of all texts of the call
    num_texts: int
    is_part: bool  # one text of a stream
    wants_room: bool  # whether to send Room


class Room(NamedTuple):
    """There is room for a run's texts; they go to an engine next."""

    number: int


class Question(NamedTuple):
    """What is true of the whole server?"""

    number: int  # as those of runs
    method: str  # of the core's `WholeServer`
    arguments: tuple[object, ...]


class Answer(NamedTuple):
    """What became of a run: `WorkDone`; or what was asked; or the error."""

    number: int
    outcome: object


class Cancel(NamedTuple):
    """Nobody waits for a run, or an answer, any more."""

    number: int


class OpenStream(NamedTuple):
    """May this caller have one more stream?"""

    number: int  # of the stream, among those of this edge
    caller: Caller


class StreamAnswer(NamedTuple):
    """It may, or why not."""

    number: int
    refusal: DragomanError | None


class CloseStream(NamedTuple):
    """A stream has ended."""

    number: int


class Departed(NamedTuple):
    """Something has left the core, after it had refused a text of a stream of this edge."""


class Counted(NamedTuple):
    """What an edge has counted, in all and since the last time; also its sign of life."""

    metrics: Snapshot
    usage: dict[Identity, Usage]
    lag_s: float  # worst of its event loop in the last seconds


class Ask(NamedTuple):
    """Send `Counted`, and then `Calls` with the oldest ones."""

    number: int
    most: int


class Calls(NamedTuple):
    """Calls in progress, the oldest first: the answer to `Ask`."""

    number: int
    calls: tuple[Call, ...]
    num_calls: int


class SetLevel(NamedTuple):
    """Log events of this level and above."""

    level: str


class Idle(NamedTuple):
    """Once every new call is refused: every call has been answered."""


class Finish(NamedTuple):
    """Send what is still to be sent, and say what was counted."""


class Finished(NamedTuple):
    """Everything has been sent: the process may end."""
