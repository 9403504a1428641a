"""Proxies that the environment names: never on the way to this machine, never for a look at health, named elsewhere."""

import socket
import threading
from collections.abc import Iterator

import pytest

from service.cli.operate import AdminClient
from service.client import AsyncClient, ClientConfig
from service.errors import DragomanError, Unavailable
from tests.fakes.command_line import run, run_against
from tests.fakes.scripted_server import running as server

__all__ = ["server"]

ELSEWHERE = "192.0.2.1:50051"  # of a network that is for documents alone


class RefusingProxy:
    """Takes connections, notes what they ask for, and refuses it."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection:
                self.asked.append(connection.recv(4_096).partition(b"\r\n")[0])
                connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")


@pytest.fixture(params=["http_proxy", "https_proxy", "grpc_proxy"])
def proxy(request, monkeypatch) -> Iterator[RefusingProxy]:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    made = RefusingProxy()
    monkeypatch.setenv(request.param, f"http://somebody:secret@127.0.0.1:{made.port}")
    yield made
    made.close()


async def test_this_machine_is_called_without_the_proxy(server, proxy):
    async with AsyncClient(server.address) as client:
        await client.wait_until_ready(10.0)
        answer = await client.translate(["one"])
    shown = await run_against(server, "models")

    assert answer.translations[0].text == "ONE"
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert proxy.asked == []


async def test_another_machine_is_called_through_it_and_the_error_names_it_without_its_password(proxy):
    config = ClientConfig(timeout_s=10.0, wait_for_ready=False, retries=False)
    errors: list[DragomanError] = []
    async with AsyncClient(ELSEWHERE, config) as client:
        for call in (client.translate(["one"]), client.wait_until_ready(0.5)):
            with pytest.raises(Unavailable) as caught:
                await call
            errors.append(caught.value)

    for error in errors:
        assert f"through the proxy 127.0.0.1:{proxy.port}, which the environment's" in str(error)
        assert "secret" not in str(error)
    assert proxy.asked[0] == f"CONNECT {ELSEWHERE} HTTP/1.1".encode()


def test_health_and_the_admin_port_are_never_called_through_it(proxy):
    ended = run("health", "--server", ELSEWHERE, "--timeout", "0.2")
    with AdminClient(ELSEWHERE) as admin, pytest.raises(DragomanError):
        admin.status(timeout_s=0.2)

    assert ended.exit_code == 1
    assert proxy.asked == []
