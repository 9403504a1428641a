"""A grpc.aio server without anything of ours, which refuses every call: what a machine can do at all.

    python -m tests.fakes.bare_server

It prints its port and runs until it is killed.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import uvloop

from tests.fakes.calls import TRANSLATE
from tests.fakes.server_process import ROOT


async def _serve() -> None:
    async def refuse(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        raise AssertionError("abort returned")

    service, method = TRANSLATE.removeprefix("/").split("/")
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(refuse)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    """Yield the address of such a server, which runs beside this process for as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.bare_server"), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    uvloop.run(_serve())
