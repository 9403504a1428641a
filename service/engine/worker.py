"""The process an engine lives in: what starts it, and its main loop.

It talks to its parent with the records of `wire.py`, over a socket pair.  The parent imports this module to start
engines, so NumPy and ONNX Runtime are imported inside functions only.  No other module of the engine knows processes.
"""

import ctypes
import gc
import os
import pkgutil
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NoReturn, cast

from model.bundle import Bundle, BundleError
from service.child_process import (
    FRAME_HEADER_BYTES,
    Ready,
    StartFailed,
    frame_length,
    from_payload,
    to_frame,
)
from service.engine.device_errors import DEVICE_LOST_STATUS, DeviceLost
from service.engine.wire import (
    CancelJob,
    Command,
    EngineSpec,
    FailureKind,
    Job,
    JobFailure,
    Outcome,
    Report,
    SearchParams,
)

if TYPE_CHECKING:
    from service.engine.loop import EngineLoop
    from service.engine.runner import Runner

# The parent, which needs little, goes first on CPUs that both use: p99 of a refusal at twice the capacity of one
# CPU was 8 - 10 ms in four runs with 5, 16 ms in one with 0
# (`pytest -m promise -p tests.reliability.table tests/reliability/test_overload.py -k real`).
_BEHIND_CORE = 5  # niceness
# A thread that is so much behind its process takes the steps of batch work alone, where other engines take the
# interactive sentences: with as many engines as CPUs, these share a CPU with whatever else the server does.
_BEHIND_ENGINES = 10  # niceness
# Points of badness, each a thousandth of the memory there is, by which an engine goes before its parent where memory is
# short: its sentences can be translated by another one.  An engine of the native library may be a third of its parent.
_KILLED_FIRST = 900
_STATS_INTERVAL_S = 0.05
_WARM_UP_BEAM = SearchParams(beam_size=4, max_target_tokens=2)


def command_line(descriptor: int) -> list[str]:
    """Return how to start an engine process that talks over this inherited socket."""
    # At once: until then, the kernel may kill the parent in its place.
    first = f"from service.child_process import become_child; become_child({_KILLED_FIRST})"
    # -P: the current directory must not provide modules.  Not -m, or the records would be __main__'s.
    return [sys.executable, "-P", "-c", f"{first}; from service.engine.worker import main; main({descriptor})"]


def main(descriptor: int) -> None:
    """Live as an engine until the parent kills this one, or is gone."""
    os.nice(_BEHIND_CORE)
    channel = socket.socket(fileno=descriptor)  # never closed: its end tells the parent that this process has ended
    received = _receive(channel)
    spec = next(received, None)
    if not isinstance(spec, EngineSpec):  # the parent went away at once
        return
    inbox: SimpleQueue[Command] = SimpleQueue()
    threading.Thread(target=_fill_inbox, args=(received, inbox), daemon=True).start()
    try:
        with warnings.catch_warnings(record=True, action="always", category=RuntimeWarning) as caught:
            engine = _create_engine(spec)
    except Exception as error:  # noqa: BLE001 - the parent says what is wrong
        _send(channel, StartFailed(f"{type(error).__name__}: {error}"))
        return
    _send(channel, Ready(tuple(str(entry.message) for entry in caught)))
    try:
        send = partial(_send, channel)
        # On a GPU, recorded steps belong to the thread that recorded them, and little of a step is the CPU's.
        gives_way = spec.is_one_of_several and spec.device == "cpu"
        _serve(engine, inbox, send, spec.heartbeat_interval_s, batch_gives_way=gives_way)
    except DeviceLost as error:
        with suppress(OSError):  # nobody reads it
            print(f"dragoman engine: {error}", file=sys.stderr, flush=True)
        os._exit(DEVICE_LOST_STATUS)  # at once: the ordinary way out waits for a device that may never answer


def _receive(channel: socket.socket) -> Iterator[object]:
    """Yield the parent's records until it closes the socket."""
    with channel.makefile("rb") as stream:
        while header := stream.read(FRAME_HEADER_BYTES):
            yield from_payload(stream.read(frame_length(header)))


def _fill_inbox(received: Iterator[object], inbox: "SimpleQueue[Command]") -> None:
    try:
        for commands in received:
            for command in cast(tuple[Command, ...], commands):
                inbox.put(command)
    finally:
        os._exit(0)  # the parent is gone: nobody waits for anything any more


def _send(channel: socket.socket, record: object) -> None:
    """Send a record to the parent; where that has gone, nobody waits for anything any more."""
    try:
        channel.sendall(to_frame(record))
    except ConnectionError:
        os._exit(0)


def create_runner(spec: EngineSpec) -> "Runner":
    """Return the runner of an engine process, unless its spec names another factory."""
    if spec.device == "cuda":
        from service.engine.cuda.runner import CudaRunner  # noqa: PLC0415 - see the module's docstring

        return CudaRunner.open(spec)
    from service.engine.choice import choose_runtime  # noqa: PLC0415 - see the module's docstring

    bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
    runtime, reason = choose_runtime(spec.runtime, bundle, spec.precision, spec.num_threads)
    if runtime == "native":
        from service.engine.cpu.native.runner import NativeRunner  # noqa: PLC0415 - see the module's docstring

        return NativeRunner(bundle, precision=spec.precision, packed_weights=spec.packed_weights)
    if spec.runtime == "native":
        raise BundleError(f"{spec.bundle_dir}: engine.runtime is native: {reason}")
    from service.engine.cpu.runner import CpuRunner  # noqa: PLC0415 - see the module's docstring

    return CpuRunner(bundle, precision=spec.precision, num_threads=spec.num_threads)


def _create_engine(spec: EngineSpec) -> "EngineLoop":
    """Return an engine that is loaded and warm, or raise RuntimeError if the model cannot translate anything."""
    from service.engine.loop import EngineLoop  # noqa: PLC0415 - see the module's docstring
    from service.engine.runner import RecordingRunner  # noqa: PLC0415 - likewise

    if spec.preflight:
        pkgutil.resolve_name(spec.preflight)(spec)
    runner: Runner = pkgutil.resolve_name(spec.runner_factory)(spec)
    budgets = runner.budgets(spec.scheduler)
    if isinstance(runner, RecordingRunner):
        runner.record(budgets)
    engine = EngineLoop(runner, budgets)
    # A full batch, so that the first sentences find memory touched and kernels chosen.
    for number in range(max(1, budgets.max_rows // _WARM_UP_BEAM.beam_size)):
        engine.submit(Job(id=-1 - number, source_ids=runner.warm_up_source, params=_WARM_UP_BEAM))
    if runner.has_scorer:
        engine.submit(Job(id=0, source_ids=runner.warm_up_source, params=_WARM_UP_BEAM, scored_ids=()))
    while not engine.is_idle:
        for outcome in engine.step():
            if isinstance(outcome, JobFailure) and outcome.kind is FailureKind.INTERNAL:
                raise RuntimeError(f"the model does not run: {outcome.message}")
    engine.take_stats()
    gc.collect()
    gc.freeze()  # what is loaded now stays: no later collection has to look at it
    return engine


def _serve(
    engine: "EngineLoop",
    inbox: "SimpleQueue[Command]",
    send: Callable[[Report], None],
    heartbeat_interval_s: float,
    *,
    batch_gives_way: bool = False,
) -> NoReturn:
    """Step while there is work, for as long as the process lives.

    Args:
        batch_gives_way: whether steps of batch work alone run behind those of other engines.
    """
    stats_due_at = time.monotonic()
    has_worked, has_freed = True, False  # since the last stats; since it worked last
    interactive = set[int]()  # ids of jobs
    behind = ThreadPoolExecutor(1, "batch", initializer=os.nice, initargs=(_BEHIND_ENGINES,))
    while True:
        for command in _take(inbox, stats_due_at - time.monotonic() if engine.is_idle else 0.0):
            match command:
                case Job(id=job_id, is_batch=is_batch):
                    engine.submit(command)
                    interactive |= set() if is_batch else {job_id}
                case CancelJob(job_id):
                    engine.cancel(job_id)
        outcomes: tuple[Outcome, ...] = ()
        if not engine.is_idle:
            if not has_worked:
                has_worked, has_freed = True, False
                stats_due_at = min(stats_due_at, time.monotonic() + _STATS_INTERVAL_S)
            is_behind = batch_gives_way and not interactive
            outcomes = tuple(behind.submit(engine.step).result() if is_behind else engine.step())
            interactive.difference_update([outcome.job_id for outcome in outcomes])
        is_due = time.monotonic() >= stats_due_at
        if outcomes or is_due:
            send(Report(outcomes, engine.take_stats() if is_due else None))
        if is_due:
            if engine.is_idle and not has_worked and not has_freed:  # nothing to do for a whole heartbeat
                return_freed_memory()
                has_freed = True
            has_worked = not engine.is_idle
            stats_due_at = time.monotonic() + (_STATS_INTERVAL_S if has_worked else heartbeat_interval_s)


def _take(inbox: "SimpleQueue[Command]", wait_s: float) -> Iterator[Command]:
    """Yield all commands there are; wait so long for the first."""
    try:
        yield inbox.get(block=wait_s > 0, timeout=wait_s)
        while True:
            yield inbox.get_nowait()
    except Empty:
        return


def return_freed_memory() -> None:
    """Return freed memory that the C library keeps to the system: up to 70 MB after long sentences, in a millisecond.

    Figures: `bench_growth --panel memory`.  Without glibc, nothing happens.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
