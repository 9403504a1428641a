"""What a model of a server is doing at one moment, for those who look."""

from dataclasses import dataclass
from typing import Literal

from service.dispatch.snapshot import DispatchSnapshot
from service.translation import ModelInfo

ModelState = Literal["loading", "serving", "draining", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """One version of a model; `info` is None of a bundle that was refused before it could be read."""

    name: str
    version: str
    state: ModelState
    info: ModelInfo | None = None
    sha256_12: str = ""
    dispatch: DispatchSnapshot | None = None  # None: it has no engines
    reason: str = ""  # why it was refused
