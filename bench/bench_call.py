"""CPU time of a call in edge and core, beside a bare grpc.aio handler that gives the same answer.

python bench/bench_call.py [--calls 4000] [--rounds 5] [--profile] [--edges]

Four calls: "blank" is a text that no engine sees; "edge" a short text that is answered in the place of queue and
engine, so that what is left is the edge's part; "short" the same through the queue to a FAKE engine that answers at
once; "refused" one for which there is no room.  The bare server runs under uvloop, as ours does, and ends each call
with the same bytes, status and trailers.
What counts is the ratio, taken in turns: CPU time of a call varies with the machine.

--edges says what a short text costs where one process is edge and core, and where two edges stand before a core, by
process: one over these is how many calls a second a CPU carries.

--profile says where the time goes, on a machine with nothing else to do.  Python's own profiler makes functions look
dearer than they are; what compiled functions take counts for the part that has called them, and what is left is
grpc.aio and the event loop.

What stands between our calls and the bare one is Python: 3,200 bytecode instructions for "blank", 6,200 for "edge",
10,300 for "short", as `sys.settrace` counts them with `f_trace_opcodes`, 600 of which belong to grpc.aio and asyncio.
They lie in some 250 functions of about equal weight: of "edge" half are the text, its tokens and the pipeline, a
tenth each the messages and the handler, the records, admission, and the metrics; of "short" a third is the queue with
its forecasts.  In the server they cost half as much again as in a loop: gRPC's work runs between them.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import grpc
import grpc.aio
import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from protos import translation_pb2 as pb
from tests.fakes.calls import TRANSLATE, calling, eventually, words
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ServerProcess, environment

SETTLE_S = 0.3  # for a signal to arrive
CALLERS = 16  # at a time, over one connection
CONNECTIONS = 4  # for each edge, with --edges: the system deals connections, not calls
SHORT_TEXT = "eight tokens"  # the echo bundle's tokens are about two characters long
# One call holds the only place for minutes.
FULL = {
    "DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS": "1",
    "DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS": "600",
    "ECHO_STEP_S": "1",
}
PARTS = (  # beginnings of files below the repository or site-packages, and what they are
    ("service/api/grpc/handlers", "what every call goes through"),
    ("service/api/lifecycle", "what every call goes through"),
    ("service/api/auth", "who calls"),
    ("service/api/grpc/status", "status and trailers"),
    ("service/api/grpc", "messages"),
    ("google/", "messages"),
    ("service/call", "records"),
    ("service/records", "records"),
    ("service/translate", "pipeline"),
    ("service/models", "pipeline"),
    ("model/", "tokenizer"),
    ("sentencepiece", "tokenizer"),
    ("service/scheduler", "admission and queue"),
    ("service/engine", "engines' frames"),
    ("service/child_process", "engines' frames"),
    ("service/telemetry", "metrics and logs"),
    ("prometheus_client", "metrics and logs"),
    ("structlog", "metrics and logs"),
    ("grpc/", "grpc.aio's Python"),
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ended, as far as the bare server has to repeat it."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    response: bytes = b""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of call."""

    name: str
    text: str
    settings: dict[str, str]
    has_engine: bool = True


CASES = (
    Case("blank", " ", {}),
    Case("edge", SHORT_TEXT, {}, has_engine=False),
    Case("short", SHORT_TEXT, {}),
    Case("refused", SHORT_TEXT, FULL),
)


async def serve_bare(ending: Ending, ports_file: Path) -> None:
    """A server without anything of ours; runs until it is killed."""
    response = pb.TranslateResponse.FromString(ending.response)

    async def translate(_: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        if ending.code is not grpc.StatusCode.OK:
            await context.abort(ending.code, ending.message, ending.trailers)
        context.set_trailing_metadata(ending.trailers)
        return response

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        translate, pb.TranslateRequest.FromString, pb.TranslateResponse.SerializeToString
    )
    service, method = TRANSLATE.removeprefix("/").split("/")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    draft = ports_file.with_suffix(".draft")
    draft.write_text(json.dumps({"grpc_port": port}))
    draft.rename(ports_file)
    await server.wait_for_termination()


class Profiler:
    """Profiles this process between two SIGUSR2."""

    def __init__(self, result: Path) -> None:
        self._result = result
        self._profile = cProfile.Profile()
        self._is_on = False
        signal.signal(signal.SIGUSR2, self._toggle)

    def _toggle(self, _: int, __: FrameType | None) -> None:
        if self._is_on:
            self._profile.disable()
            self._profile.dump_stats(self._result)
        else:
            self._profile.enable()
        self._is_on = not self._is_on


def _seconds_by_part(result: Path) -> Counter[str]:
    """Seconds in functions of each part; those of compiled functions count for the part that has called them."""
    stats: dict[Any, Any] = vars(pstats.Stats(str(result)))["stats"]
    found: Counter[str] = Counter()
    for (file, _, _), (_, _, own_s, _, callers) in stats.items():
        if file == "~":
            for (caller, _, _), (_, _, from_caller_s, _) in callers.items():
                found[_part_of(caller)] += from_caller_s
        else:
            found[_part_of(file)] += own_s
    return found


def _part_of(file: str) -> str:
    name = file.removeprefix(f"{machine.ROOT}/").rpartition("site-packages/")[2]
    return next((part for beginning, part in PARTS if name.startswith(beginning)), "Python's libraries")


@contextmanager
def running(command: Sequence[str], scratch: Path, **variables: str) -> Iterator[ServerProcess]:
    """A server process that writes its ports to a file."""
    log, ports_file = scratch / "server.log", scratch / "ports.json"
    ports_file.unlink(missing_ok=True)
    with log.open("w") as stream:
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=stream, stderr=stream, text=True)
    try:
        while not ports_file.exists():
            if process.poll() is not None:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.01)
        ports = json.loads(ports_file.read_text())
        yield ServerProcess(process, log, ports["grpc_port"], ports.get("http_port", 0))
    finally:
        process.kill()
        process.wait()


def our_server(case: Case, scratch: Path, *, profile: bool = False) -> Any:
    """A server of ours whose FAKE engine says the text again."""
    bundle = scratch / "bundle"
    if not bundle.exists():
        write_echo_bundle(bundle)
    settings = {"DRAGOMAN_LIFECYCLE__PORTS_FILE": str(scratch / "ports.json"), "TMPDIR": str(scratch)}
    if profile:
        command = [sys.executable, __file__, "--profiled", str(scratch / "profile")]
    elif not case.has_engine:
        command = [sys.executable, __file__, "--without-engine"]
    else:
        command = [sys.executable, "-m", "service", "serve"]
    return running(command, scratch, **environment(bundle, **settings, **case.settings))


def bare_server(ending: Ending, scratch: Path) -> Any:
    """One that ends every call so."""
    given = {
        "code": ending.code.name,
        "message": ending.message,
        "trailers": [[key, value.hex() if isinstance(value, bytes) else value] for key, value in ending.trailers],
        "response": ending.response.hex(),
    }
    return running([sys.executable, __file__, "--bare", json.dumps(given), str(scratch / "ports.json")], scratch)


def _run_bare(given: dict[str, Any], ports_file: Path) -> None:
    trailers = tuple((k, bytes.fromhex(v) if k.endswith("-bin") else v) for k, v in given["trailers"])
    code, response = grpc.StatusCode[given["code"]], bytes.fromhex(given["response"])
    uvloop.run(serve_bare(Ending(code, given["message"], trailers, response), ports_file))


def _run_profiled(result: Path) -> None:
    from service.cli.app import app

    Profiler(result)
    app(["serve"])


def _run_without_engine() -> None:
    """Serve with every text answered by itself, in the place of queue and engine."""
    from service.cli.app import app
    from service.engine.wire import FinishReason, Hypothesis, JobResult, Settled
    from service.models.call_scheduler import CallScheduler, Work

    async def answer(self: object, model: object, work: Work, call: Any, reservation: Any) -> list[Settled]:
        reservation.take_tokens(sum(len(job.source_ids) for job in work.jobs))
        results: list[Settled] = []
        for job in work.jobs:
            found = Hypothesis(token_ids=job.source_ids[:-1], score=-0.5, finish_reason=FinishReason.END_OF_SENTENCE)
            result = JobResult(0, (found,), 0.0, 0.0, 0.0, num_steps=len(job.source_ids))
            call.job_finished(result)
            results.append(result)
        return results

    CallScheduler.run_admitted = answer  # type: ignore[method-assign]
    app(["serve"])


async def ending_of(address: str, text: str) -> Ending:
    """How such a call ends there."""
    async with calling(address) as calls:
        call = calls.translate(text)
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            return Ending(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
        trailers = tuple(await call.trailing_metadata())
        return Ending(response=response.SerializeToString(), trailers=trailers)


async def cpu_us(server: ServerProcess, text: str, num_calls: int) -> float:
    """Microseconds of CPU time per call, in the server process alone."""
    process = psutil.Process(server.process.pid)
    async with calling(server.address) as calls:
        await _call_often(calls, text, num_calls // 10)
        before = _cpu_s(process)
        await _call_often(calls, text, num_calls)
        return (_cpu_s(process) - before) / num_calls * 1e6


async def _call_often(calls: Any, text: str, num_calls: int) -> None:
    numbers = iter(range(num_calls))

    async def call() -> None:
        for _ in numbers:
            try:
                await calls.translate(text)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise

    await asyncio.gather(*(call() for _ in range(CALLERS)))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def place_taken(case: Case, server: ServerProcess) -> Iterator[None]:
    """Where the case is that of a full server: one call of another process holds its place."""
    if case.settings is not FULL:
        yield
        return
    holder = subprocess.Popen([sys.executable, __file__, "--hold", server.address])
    try:
        asyncio.run(eventually(lambda: server.metric("dragoman_running_jobs") == 1))
        yield
    finally:
        holder.kill()
        holder.wait()


async def _hold(address: str) -> None:
    async with calling(address) as calls:
        await calls.translate(words(500), timeout=600.0)


def compare(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    """The medians of ours and of the bare server, taken in turns."""
    figures: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        one, other = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        ours = stack.enter_context(our_server(case, one))
        stack.enter_context(place_taken(case, ours))
        bare = stack.enter_context(bare_server(asyncio.run(ending_of(ours.address, case.text)), other))
        for _ in range(arguments.rounds):
            for server, found in zip((ours, bare), figures, strict=True):
                found.append(asyncio.run(cpu_us(server, case.text, arguments.calls)))
    ratios = [a / b for a, b in zip(*figures, strict=True)]
    return {
        "call": case.name,
        "ours_us": round(median(figures[0])),
        "bare_us": round(median(figures[1])),
        "ratio": round(median(ratios), 2),
    }


def by_process(num_edges: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of CPU time per call in all edges, and in the core; calls per second and latency beside it."""
    case = Case("short", SHORT_TEXT, {"DRAGOMAN_LISTEN__EDGES": str(num_edges)})
    with tempfile.TemporaryDirectory() as directory, our_server(case, Path(directory)) as server:
        core = psutil.Process(server.process.pid)
        edges = [child for child in core.children() if "frontend_worker" in " ".join(child.cmdline())]
        asyncio.run(_call_over(server.address, num_edges, arguments.calls // 10))
        before = [_cpu_s(core), sum(map(_cpu_s, edges))]
        seconds, latencies = asyncio.run(_call_over(server.address, num_edges, arguments.calls))
        used = [after - was for was, after in zip(before, [_cpu_s(core), sum(map(_cpu_s, edges))], strict=True)]
    core_us, edges_us = (one / arguments.calls * 1e6 for one in used)
    return {
        "edges": num_edges,
        "core_us": round(core_us),
        "edges_us": round(edges_us),
        "calls_per_s": round(arguments.calls / seconds),
        "p50_ms": round(latencies[len(latencies) // 2] * 1e3, 1),
        "p99_ms": round(latencies[len(latencies) * 99 // 100] * 1e3, 1),
    }


async def _call_over(address: str, num_edges: int, num_calls: int) -> tuple[float, list[float]]:
    """Seconds of so many calls, `CALLERS` at a time for each edge, and how long each took, sorted."""
    numbers, latencies = iter(range(num_calls)), list[float]()

    async def call(calls: Any) -> None:
        for _ in numbers:
            began = time.monotonic()
            await calls.translate(SHORT_TEXT)
            latencies.append(time.monotonic() - began)

    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(calling(address)) for _ in range(CONNECTIONS * num_edges)]
        began = time.monotonic()
        await asyncio.gather(*(call(calls) for calls in connections for _ in range(CALLERS // CONNECTIONS)))
        return time.monotonic() - began, sorted(latencies)


def profile(case: Case, num_calls: int) -> dict[str, float]:
    """Microseconds of CPU time per call, by part."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        with our_server(case, scratch, profile=True) as server, place_taken(case, server):
            asyncio.run(cpu_us(server, case.text, num_calls // 10))
            server.process.send_signal(signal.SIGUSR2)
            time.sleep(SETTLE_S)
            total_us = asyncio.run(cpu_us(server, case.text, num_calls))
            server.process.send_signal(signal.SIGUSR2)
            time.sleep(SETTLE_S)
            found = _seconds_by_part(scratch / "profile")
    by_part = {part: seconds / (num_calls * 1.1) * 1e6 for part, seconds in found.items()}  # a tenth is warm-up
    return {**by_part, "grpc.aio and event loop": total_us - sum(by_part.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    parser.add_argument("--edges", action="store_true", help="say what edges and core take")
    for name, number in (("--bare", 2), ("--profiled", 1), ("--hold", 1)):  # how this file starts its own processes
        parser.add_argument(name, nargs=number, help=argparse.SUPPRESS)
    parser.add_argument("--without-engine", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        _run_bare(json.loads(arguments.bare[0]), Path(arguments.bare[1]))
    elif arguments.profiled:
        _run_profiled(Path(arguments.profiled[0]))
    elif arguments.without_engine:
        _run_without_engine()
    elif arguments.hold:
        with suppress(grpc.aio.AioRpcError):
            asyncio.run(_hold(arguments.hold[0]))
    elif arguments.edges:
        rows = [by_process(num_edges, arguments) for num_edges in (1, 2) for _ in range(arguments.rounds)]
        for row in rows:
            print(*(f"{name} {value}" for name, value in row.items()), sep="  ")
        print(json.dumps({"rows": rows, **machine.describe(os.cpu_count() or 1)}))
    elif arguments.profile:
        _print_profile({case.name: profile(case, arguments.calls) for case in CASES if case.has_engine})
    else:
        rows = []
        print("call      ours us  bare us  ratio")
        for case in CASES:
            row = compare(case, arguments)
            rows.append(row)
            print(f"{row['call']:<8} {row['ours_us']:>8} {row['bare_us']:>8} {row['ratio']:>6.2f}", flush=True)
        print(json.dumps({"rows": rows, **machine.describe(os.cpu_count() or 1)}))


def _print_profile(found: dict[str, dict[str, float]]) -> None:
    parts = sorted({part for row in found.values() for part in row}, key=lambda part: -found["short"].get(part, 0.0))
    print(f"{'us of CPU time a call':<26}" + "".join(f"{name:>9}" for name in found))
    for part in parts:
        print(f"{part:<26}" + "".join(f"{row.get(part, 0.0):>9.0f}" for row in found.values()))
    print(f"{'all':<26}" + "".join(f"{sum(row.values()):>9.0f}" for row in found.values()))


if __name__ == "__main__":
    main()
