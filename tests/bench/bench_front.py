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
class CallEnd:
    """How a call ended, as far as the bare server has to repeat it."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    response: bytes = b""


async def serve_bare(end: CallEnd, to_parent: Connection) -> None:
    """Run a server without anything of ours that ends every call so; never returns."""
    response = pb.TranslateResponse.FromString(end.response)

    async def translate(_: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        if end.code is not grpc.StatusCode.OK:
            await context.abort(end.code, end.message, end.trailers)
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


def bare_process(end: CallEnd, to_parent: Connection) -> None:
    asyncio.run(serve_bare(end, to_parent))


@contextmanager
def our_server(**settings: str) -> Iterator[ServerProcess]:
    """Run a server of ours whose engine says the text again."""
    with tempfile.TemporaryDirectory() as scratch:
        server = start(write_echo_bundle(Path(scratch) / "bundle"), Path(scratch), **settings)
        try:
            yield server
        finally:
            server.terminate()
            server.wait()


async def end_of_a_call(address: str) -> CallEnd:
    async with calling(address) as calls:
        try:
            return CallEnd(response=(await calls.translate(TEXT)).SerializeToString())
        except grpc.aio.AioRpcError as error:
            return CallEnd(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))


async def cpu_us(address: str, pid: int, num_calls: int) -> float:
    """Return the microseconds of CPU time per call that this process takes."""

    async def call_often(number: int) -> float:
        numbers = iter(range(number))

        async def call() -> None:
            for _ in numbers:
                try:
                    await calls.translate(TEXT)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise

        await asyncio.gather(*(call() for _ in range(CALLERS)))
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    async with calling(address) as calls:
        before = await call_often(num_calls // 10)
        return (await call_often(num_calls) - before) / num_calls * 1e6


async def compare(server: ServerProcess, arguments: argparse.Namespace) -> tuple[float, float]:
    """Return the medians of ours and of the bare server, taken in turns."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    end = await end_of_a_call(server.address)
    bare = multiprocessing.get_context("spawn").Process(target=bare_process, args=(end, theirs), daemon=True)
    bare.start()
    try:
        assert bare.pid
        assert ours.poll(START_S), "the bare server did not start"
        subjects = ((server.address, server.process.pid), (f"127.0.0.1:{ours.recv()}", bare.pid))
        rounds = [[await cpu_us(*each, arguments.calls) for each in subjects] for _ in range(arguments.rounds)]
    finally:
        bare.terminate()
        bare.join()
    return median(found[0] for found in rounds), median(found[1] for found in rounds)


async def refused(arguments: argparse.Namespace) -> tuple[float, float]:
    """Measure calls to a server whose only place is taken."""
    with our_server(**FULL) as server:
        async with calling(server.address) as calls:
            holder = asyncio.ensure_future(calls.translate("x" * 500, timeout=600.0))
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
            try:
                return await compare(server, arguments)
            finally:
                holder.cancel()


async def answered(arguments: argparse.Namespace) -> tuple[float, float]:
    """Measure calls to a server with nothing else to do."""
    with our_server() as server:
        return await compare(server, arguments)


async def main() -> int:
    """Measure and print; 1 if refused calls are too dear."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-ratio", type=float, default=float("inf"))
    arguments = parser.parse_args()
    rows = []
    print("call      ours us  bare us  ratio")
    for name, measure in (("refused", refused), ("answered", answered)):
        ours, bare = await measure(arguments)
        rows.append({"call": name, "ours_us": round(ours), "bare_us": round(bare), "ratio": round(ours / bare, 2)})
        print(f"{name:8}  {ours:7.0f}  {bare:7.0f}  {ours / bare:5.2f}")
    print(json.dumps({"bench": "front", "rows": rows}))
    return int(rows[0]["ratio"] > arguments.max_ratio)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
