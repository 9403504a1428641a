"""What a server's models are doing at one moment, for those who look."""

from dataclasses import dataclass
from typing import Literal

from service.engines.dispatcher import DispatchSnapshot
from service.records import ModelInfo
from service.registry.changes import Refusal
from service.registry.host import HostState, ModelHost
from service.registry.reloader import Reloader

ModelState = Literal["loading", "serving", "draining", "refused"]

_STATES: dict[HostState, ModelState] = {
    HostState.LOADING: "loading",
    HostState.SERVING: "serving",
    HostState.DRAINING: "draining",
    HostState.ENDED: "draining",  # on its way out
}


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


def model_snapshots(reloader: Reloader, now: float) -> list[ModelSnapshot]:
    """Of every version that has engines, and of those that were refused at the last look.

    Args:
        now: time.monotonic().
    """
    return [
        *(_of_host(host, now) for host in reloader.hosts),
        *(_of_refusal(refusal) for refusal in reloader.refusals),
    ]


def _of_host(host: ModelHost, now: float) -> ModelSnapshot:
    return ModelSnapshot(
        name=host.info.name,
        version=host.info.version,
        state=_STATES[host.state],
        info=host.info,
        sha256_12=host.sha256_12,
        dispatch=host.dispatcher.snapshot(now),
    )


def _of_refusal(refusal: Refusal) -> ModelSnapshot:
    candidate = refusal.candidate
    return ModelSnapshot(
        name=candidate.name or candidate.directory.name,
        version=candidate.version,
        state="refused",
        sha256_12=candidate.manifest_sha256[:12],
        reason=refusal.reason,
    )
