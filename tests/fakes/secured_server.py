"""A real server whose callers need keys, the keys, and what its log says of them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from service.api.auth import generate_key
from service.cli.keys import append_entry, entry_of
from tests.fakes.calls import Calls
from tests.fakes.server_process import ServerProcess, StartServer

Code = grpc.StatusCode
QUICK = "0.05"  # seconds until changed files are noticed


async def retried(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Return once it succeeds: when another process notices a change cannot be awaited."""
    async with asyncio.timeout(20):
        while not await attempt():
            pass


def events(server: ServerProcess, name: str) -> list[dict[str, str]]:
    """The lines of the log about one kind of event; gRPC's own lines are no JSON."""
    lines = [line for line in server.log_text().splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["event"] == name]


class Keys:
    """A file of keys: one for everything, one for another model, one for administration."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.shop = self.add("shop")
        self.elsewhere = self.add("elsewhere", models=["other"])
        self.admin = self.add("operator", admin=True)

    def add(self, name: str, **rights: object) -> str:
        """A key that is in the file from here on."""
        key = generate_key()
        append_entry(self.file, entry_of(key, name, **rights))
        return key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The same for all tests of a module."""
    return Keys(tmp_path_factory.mktemp("keys") / "keys.toml")


@pytest.fixture
def guarded(start_server: StartServer, keys: Keys) -> ServerProcess:
    return start_server(DRAGOMAN_SECURITY__API_KEYS=str(keys.file), DRAGOMAN_SECURITY__RELOAD_S=QUICK)


def with_key(key: str, request_id: str = "call-1") -> tuple[tuple[str, str], ...]:
    return ("authorization", f"Bearer {key}"), ("x-request-id", request_id)


async def code_with(calls: Calls, method: str, key: str) -> Code:
    """The status of a call without a message that anybody would understand."""
    try:
        await calls.method(method)(b"\x0a\x01a", metadata=with_key(key), timeout=120.0)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return Code.OK
