"""What a dispatcher and its engines are doing at one moment, for those who look."""

from dataclasses import dataclass
from typing import Literal

EngineState = Literal["up", "starting", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """One place for an engine process."""

    pid: int | None  # None: no process takes work now
    state: EngineState  # waiting: for another attempt to start one
    jobs: int  # sentences it holds
    rows: int  # hypotheses it decodes, as it last reported
    max_rows: int  # up to which it starts jobs, likewise; less than configured where memory is short
    restarts: int  # processes lost in this place
    silent_s: float  # since its last sign of life


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSnapshot:
    """One dispatcher."""

    queued_jobs: int
    queued_tokens: int
    engines: tuple[EngineSnapshot, ...]
