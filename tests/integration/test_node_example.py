"""examples/node: Dragoman called by another gRPC library, with nothing but protos/."""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from tests.fakes.scripted_server import failing_first
from tests.fakes.scripted_server import running as scripted

__all__ = ["scripted"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "node"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="no node: it comes with the Debian package nodejs"),
    pytest.mark.skipif(not (EXAMPLE / "node_modules").exists(), reason="its packages are not installed: make try-node"),
]


class Output(NamedTuple):
    status: int
    lines: list[str]
    errors: str


async def node(address: str, *arguments: str, stdin: str = "") -> Output:
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(EXAMPLE / "translate.js"),
        *("--server", address, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, errors = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return Output(process.returncode, out.decode().splitlines(), errors.decode())


async def test_call_gives_the_translations_in_order(server):
    assert await node(server.address, "One.", "Two.") == Output(0, ["0\tOne.", "1\tTwo."], "")


async def test_stream_gives_each_text_its_translation(server):
    texts = [f"text {number}" for number in range(300)]  # more than the server takes in at a time

    output = await node(server.address, "--stream", stdin="\n".join(texts))

    assert output.status == 0, output.errors
    assert sorted(output.lines) == sorted(f"{number}\t{text}" for number, text in enumerate(texts))


async def test_published_service_config_calls_again_when_the_server_says(scripted):
    scripted.service.handler = failing_first(2, grpc.StatusCode.RESOURCE_EXHAUSTED, (("grpc-retry-pushback-ms", "5"),))

    assert await node(scripted.address, "one") == Output(0, ["0\tONE"], "")
    assert len(scripted.service.requests) == 3
