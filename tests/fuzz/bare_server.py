"""A grpc.aio server that has nothing of the project in it: memory that it loses is lost by grpcio.

    python -m tests.fuzz.bare_server 600        # bytes of each answer

Prints its port.  It answers Translate with as many bytes as it was told, and IN_USE with the bytes that its process
holds.
"""

import asyncio
import ctypes
import gc
import sys
from typing import Any

import grpc
import grpc.aio

IN_USE = "/bare.Bare/InUse"
_WORK_S = 0.01  # the time of an answer: a call that is taken back meets its server at work


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def bytes_in_use() -> int:
    """What malloc has given out and not got back; free memory between it does not count."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallocInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        is_question = handler_call_details.method == IN_USE
        return grpc.unary_unary_rpc_method_handler(self._in_use if is_question else self._translate)

    async def _translate(self, _: bytes, context: object) -> bytes:
        await asyncio.sleep(_WORK_S)
        return self._answer

    async def _in_use(self, _: bytes, context: object) -> bytes:
        return str(bytes_in_use()).encode()


async def main(answer_bytes: int) -> None:
    """Serve until the process is killed."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handlers(b"x" * answer_bytes),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
