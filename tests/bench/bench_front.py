"""CPU time of the front process per call: one that admission refuses, and one that an engine answers at once.

python tests/bench/bench_front.py [--calls 3000] [--rounds 3] [--max-ratio 2.5]

Beside each stands a bare grpc.aio server that ends the same call with the same status and trailers, or answers it with
the same message.  What counts is the ratio: CPU time of a call varies with the machine, and much less in relation to
that.  --max-ratio makes a larger one, of refused calls, a failure.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import grpc.aio
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from protos import translation_pb2 as pb
from tests.fakes.calls import TRANSLATE, calling, eventually
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ServerProcess, start

CALLERS = 16  # at a time, over one connection
TEXT = "a short text"
START_S = 30.0
# One call holds the only place for minutes.
FULL = {
    "DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS": "1",
    "DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS": "600",
    "ECHO_STEP_S": "1",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, as far as the bare server has to repeat it."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    response: bytes = b""


@dataclass(frozen=True, slots=True)
class Subject:
    """A server, and the process of it that is measured."""

    address: str
    process: psutil.Process


def serve_bare(outcome: Outcome, to_parent: Connection) -> None:
    """A server without anything of ours; never returns."""
    asyncio.run(_serve_bare(outcome, to_parent))


async def _serve_bare(outcome: Outcome, to_parent: Connection) -> None:
    response = pb.TranslateResponse.FromString(outcome.response)

    async def translate(_: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        if outcome.code is not grpc.StatusCode.OK:
            await context.abort(outcome.code, outcome.message, outcome.trailers)
        return response

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        translate, pb.TranslateRequest.FromString, pb.TranslateResponse.SerializeToString
    )
    service, method = TRANSLATE.removeprefix("/").split("/")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    to_parent.send(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


@contextmanager
def bare_server(outcome: Outcome) -> Iterator[Subject]:
    """One that ends every call so."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_bare, args=(outcome, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(START_S):
            raise TimeoutError("the bare server did not start")
        yield Subject(f"127.0.0.1:{ours.recv()}", psutil.Process(process.pid))
    finally:
        process.terminate()
        process.join()


@contextmanager
def our_server(**settings: str) -> Iterator[ServerProcess]:
    """A server of ours whose engine says the text again."""
    with tempfile.TemporaryDirectory() as scratch:
        server = start(write_echo_bundle(Path(scratch) / "bundle"), Path(scratch), **settings)
        try:
            yield server
        finally:
            server.terminate()
            server.wait()


async def outcome_of(address: str) -> Outcome:
    """How a call ends there."""
    async with calling(address) as calls:
        call = calls.translate(TEXT)
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            return Outcome(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
        return Outcome(response=response.SerializeToString())


async def cpu_us(subject: Subject, num_calls: int) -> float:
    """Microseconds of CPU time per call."""
    async with calling(subject.address) as calls:
        await _call_often(calls, num_calls // 10)
        before = cpu_s(subject.process)
        await _call_often(calls, num_calls)
        return (cpu_s(subject.process) - before) / num_calls * 1e6


async def _call_often(calls: Any, num_calls: int) -> None:
    numbers = iter(range(num_calls))

    async def call() -> None:
        for _ in numbers:
            try:
                await calls.translate(TEXT)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise

    await asyncio.gather(*(call() for _ in range(CALLERS)))


def cpu_s(process: psutil.Process) -> float:
    """Seconds of CPU time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def compare(server: ServerProcess, arguments: argparse.Namespace) -> tuple[float, float]:
    """The medians of ours and of the bare server, taken in turns."""
    ours = Subject(server.address, psutil.Process(server.process.pid))
    outcome = await outcome_of(ours.address)
    figures: tuple[list[float], list[float]] = ([], [])
    with bare_server(outcome) as bare:
        for _ in range(arguments.rounds):
            for subject, found in zip((ours, bare), figures, strict=True):
                found.append(await cpu_us(subject, arguments.calls))
    return median(figures[0]), median(figures[1])


async def refused(arguments: argparse.Namespace) -> tuple[float, float]:
    """Calls to a server whose only place is taken."""
    with our_server(**FULL) as server:
        async with calling(server.address) as calls:
            holder = asyncio.ensure_future(calls.translate("x" * 500, timeout=600.0))
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
            try:
                return await compare(server, arguments)
            finally:
                holder.cancel()


async def answered(arguments: argparse.Namespace) -> tuple[float, float]:
    """Calls to a server with nothing else to do."""
    with our_server() as server:
        return await compare(server, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-ratio", type=float)
    return parser.parse_args()


async def main(arguments: argparse.Namespace) -> bool:
    """Measure, print; whether refused calls are cheap enough."""
    rows = []
    print("call      ours us  bare us  ratio")
    for name, measure in (("refused", refused), ("answered", answered)):
        ours, bare = await measure(arguments)
        rows.append({"call": name, "ours_us": round(ours), "bare_us": round(bare), "ratio": round(ours / bare, 2)})
        print(f"{name:8}  {ours:7.0f}  {bare:7.0f}  {ours / bare:5.2f}")
    print(json.dumps({"bench": "front", "rows": rows}))
    return arguments.max_ratio is None or rows[0]["ratio"] <= arguments.max_ratio


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(_arguments())) else 1)
