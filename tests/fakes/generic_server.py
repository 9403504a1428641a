"""A gRPC server with one generic handler, and the refusal of a full one as it is sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from service.errors import Overloaded
from service.grpc.status import to_wire

FULL = to_wire(Overloaded("8 calls are in flight, at most 8 may", reason="queue_full", retry_after_s=0.01))


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler, **options: str | int) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to it; `options` are gRPC's channel arguments, "grpc." left out."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    given = [(f"grpc.{name}", value) for name, value in options.items()]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", given) as channel:
        yield channel
    await server.stop(None)
