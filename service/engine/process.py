"""The process an engine lives in: what starts it, what it is told, what it reports, and its main loop.

Frames of pickled records over a socket pair, a length of four bytes in front.  The front process imports this module
for the records, so that NumPy and ONNX Runtime are loaded inside `main` only.  Nothing else knows processes.

    front -> engine     EngineSpec, then tuples of Start | Cancel
    engine -> front     Ready or StartFailed, then Reports: outcomes at once, and a sign of life every heartbeat
"""

import ctypes
import faulthandler
import gc
import importlib
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NoReturn, cast

from service.engine.faults import DEVICE_LOST_STATUS, DeviceLost
from service.engine.job import FailureKind, Job, JobFailure, Outcome, SearchParams, StepStats
from service.engine.spec import EngineSpec

if TYPE_CHECKING:
    from service.engine.loop import EngineLoop
    from service.engine.runner import Runner

_LENGTH = struct.Struct("!I")
# The front process, which needs little, goes first on CPUs that both use: p99 of a refusal at twice the capacity of one
# core was 8 - 10 ms in four runs with 5, 16 ms in one with 0
# (`pytest -m promise -p tests.reliability.table tests/reliability/test_overload.py -k real`).
_BEHIND_FRONT = 5  # niceness
_STATS_INTERVAL_S = 0.05
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_WARM_UP_BEAM = SearchParams(beam_size=4, max_target_tokens=2)


@dataclass(frozen=True, slots=True)
class Start:
    """Queue a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job at the next step; its outcome still comes."""

    job_id: int


Command = Start | Cancel


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and warm."""

    warnings: tuple[str, ...] = ()  # what is not as it should be, but good enough to serve


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The engine cannot serve; it exits after this."""

    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """A sign of life."""

    outcomes: tuple[Outcome, ...] = ()
    stats: StepStats | None = None


Message = Ready | StartFailed | Report


def command_line(descriptor: int) -> list[str]:
    """How to start an engine process that talks over this inherited socket."""
    # -P: the current directory must not provide modules.  Not -m, or the records would be __main__'s.
    return [sys.executable, "-P", "-c", f"from service.engine.process import main; main({descriptor})"]


def environment() -> dict[str, str]:
    """The environment of an engine process: the same import path, and one thread in NumPy's own pools."""
    import_path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": import_path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def to_frame(record: object) -> bytes:
    """A record as it crosses."""
    payload = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(payload)) + payload


def frame_length(header: bytes) -> int:
    """Bytes that follow the header."""
    (length,) = _LENGTH.unpack(header)
    return int(length)


FRAME_HEADER_BYTES = _LENGTH.size


def from_payload(payload: bytes) -> object:
    """The record in a frame."""
    return pickle.loads(payload)  # noqa: S301 - both ends are our own process tree


def main(descriptor: int) -> None:
    """Live as an engine until the front process kills this one, or is gone."""
    _bind_to_parent()
    os.nice(_BEHIND_FRONT)
    channel = socket.socket(fileno=descriptor)  # never closed: its end tells the front that this process has ended
    received = _receive(channel)
    spec = next(received, None)
    if not isinstance(spec, EngineSpec):  # the front process went away at once
        return
    inbox: SimpleQueue[Command] = SimpleQueue()
    threading.Thread(target=_fill_inbox, args=(received, inbox), daemon=True).start()
    try:
        with warnings.catch_warnings(record=True, action="always", category=RuntimeWarning) as caught:
            engine = _create_engine(spec)
    except Exception as error:  # noqa: BLE001 - the front process says what is wrong
        _send(channel, StartFailed(f"{type(error).__name__}: {error}"))
        return
    _send(channel, Ready(tuple(str(entry.message) for entry in caught)))
    try:
        _serve(engine, inbox, partial(_send, channel), spec.heartbeat_interval_s)
    except DeviceLost as error:
        print(f"dragoman engine: {error}", file=sys.stderr, flush=True)
        os._exit(DEVICE_LOST_STATUS)  # at once: the ordinary way out waits for a device that may never answer


def _bind_to_parent() -> None:
    """Leave the signals of a terminal or process group to the front process, which gets them too; never outlive it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:
        faulthandler.register(signal.SIGUSR1, sys.stderr)  # where its threads stand; else the signal would end it
    if sys.platform == "linux":  # elsewhere the end of the socket tells
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _receive(channel: socket.socket) -> Iterator[object]:
    """The front's records until it closes the socket."""
    with channel.makefile("rb") as stream:
        while header := stream.read(FRAME_HEADER_BYTES):
            yield from_payload(stream.read(frame_length(header)))


def _send(channel: socket.socket, record: object) -> None:
    """A record to the front; where that has gone meanwhile, nobody waits for it: the end, without a complaint."""
    try:
        channel.sendall(to_frame(record))
    except ConnectionError:
        os._exit(0)


def _fill_inbox(received: Iterator[object], inbox: "SimpleQueue[Command]") -> None:
    try:
        for commands in received:
            for command in cast(tuple[Command, ...], commands):
                inbox.put(command)
    finally:
        os._exit(0)  # the front process is gone: nobody waits for anything any more


def create_runner(spec: EngineSpec) -> "Runner":
    """Return the runner of an engine process, unless its spec names another factory.

    Raises:
        BundleError: the bundle cannot be used, or has no such precision.
        DeviceError: the device cannot be used.
    """
    if spec.device == "cuda":
        from service.engine.cuda.runner import CudaRunner  # noqa: PLC0415 - see the module's docstring

        return CudaRunner.open(spec)
    from service.engine.cpu.runner import CpuRunner  # noqa: PLC0415 - see the module's docstring

    return CpuRunner.open(spec)


def _create_engine(spec: EngineSpec) -> "EngineLoop":
    from service.engine.loop import EngineLoop  # noqa: PLC0415 - see the module's docstring

    if spec.preflight:
        cast("Callable[[EngineSpec], None]", _find(spec.preflight))(spec)
    runner = cast("Callable[[EngineSpec], Runner]", _find(spec.runner_factory))(spec)
    budgets = runner.budgets(spec.scheduler)
    engine = EngineLoop(runner, budgets)
    _warm_up(engine, runner.warm_up_source, budgets.max_rows)
    gc.collect()
    gc.freeze()  # what is loaded now stays: no later collection has to look at it
    return engine


def _find(name: str) -> object:
    """Return what "module:function" names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _warm_up(engine: "EngineLoop", source_ids: tuple[int, ...], max_rows: int) -> None:
    """Fill the batch once, so that the first sentences find memory touched and kernels chosen.

    Raises:
        RuntimeError: the model cannot even do that, as with graphs that do not fit together.
    """
    for number in range(max(1, max_rows // _WARM_UP_BEAM.beam_size)):
        engine.submit(Job(id=-1 - number, source_ids=source_ids, params=_WARM_UP_BEAM))
    while not engine.is_idle:
        for outcome in engine.step():
            if isinstance(outcome, JobFailure) and outcome.kind is FailureKind.INTERNAL:
                raise RuntimeError(f"the model does not run: {outcome.message}")
    engine.take_stats()


def _serve(
    engine: "EngineLoop", inbox: "SimpleQueue[Command]", send: Callable[[Report], None], heartbeat_interval_s: float
) -> NoReturn:
    """Step while there is work, for as long as the process lives."""
    stats_sent_at = time.monotonic()
    has_worked = False  # since memory was last returned
    while True:
        wait_s = heartbeat_interval_s if engine.is_idle else 0.0
        commands = list(_take(inbox, wait_s))
        if has_worked and engine.is_idle and not commands:  # nothing to do for a whole heartbeat
            return_freed_memory()
            has_worked = False
        for command in commands:
            match command:
                case Start(job):
                    engine.submit(job)
                    has_worked = True
                case Cancel(job_id):
                    engine.cancel(job_id)
        outcomes = () if engine.is_idle else tuple(engine.step())
        now = time.monotonic()
        is_due = engine.is_idle or now - stats_sent_at >= _STATS_INTERVAL_S
        if outcomes or is_due:
            send(Report(outcomes, engine.take_stats() if is_due else None))
        if is_due:
            stats_sent_at = now


def return_freed_memory() -> None:
    """Have the C library hand back what it keeps of freed memory: up to 70 MB after long sentences, in a millisecond.

    Figures: `bench_growth --panel memory`.  Elsewhere than with glibc, nothing.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _take(inbox: "SimpleQueue[Command]", wait_s: float) -> Iterator[Command]:
    """All commands there are; waits for the first."""
    try:
        yield inbox.get(block=wait_s > 0, timeout=wait_s)
        while True:
            yield inbox.get_nowait()
    except Empty:
        return
