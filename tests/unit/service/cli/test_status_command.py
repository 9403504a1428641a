"""What `dragoman status` prints of an answer, and what it says when there is none."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from protos import admin_pb2 as pb
from protos.admin_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server
from service.cli.app import app
from service.cli.operate import report

STATUS = pb.GetStatusResponse(
    version="1.2",
    pid=42,
    uptime_s=7_300.0,
    state="degraded",
    num_requests=3,
    admitted_tokens=250,
    max_admitted_tokens=1_000,
    log_level="info",
    models=[
        pb.ModelStatus(
            name="en-de",
            version="2",
            state="serving",
            source_language="en",
            target_language="de",
            queued_tokens=1 << 40,
            engines=[pb.EngineStatus(pid=77, state="up", jobs=5, rows=20, max_rows=64, silent_s=0.25)],
        ),
        pb.ModelStatus(name="en-de", version="3", state="refused", reason="weights.data is truncated"),
    ],
    requests=[
        pb.RequestStatus(
            request_id="r1",
            method="dragoman.v1.TranslationService/Translate",
            model="en-de",
            client="shop",
            client_source="key",
            age_s=1.25,
        ),
        pb.RequestStatus(client="10.0.0.7"),
    ],
)


class Admin(AdminServiceServicer):
    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []

    def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:  # noqa: N802 - gRPC's name
        self.asked.append((request.max_requests, dict(context.invocation_metadata())))
        return STATUS


@pytest.fixture
def admin() -> Iterator[tuple[Admin, str]]:
    servicer, server = Admin(), grpc.server(ThreadPoolExecutor(1))
    add_AdminServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(None).wait()


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["status", *arguments], env=environment)


def printed(status: pb.GetStatusResponse) -> str:
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        console.print(report(status))
    return capture.get()


def test_tables_show_server_models_engines_and_calls():
    lines = printed(STATUS).splitlines()

    assert "dragoman 1.2, pid 42, degraded; up 2.0 h; 3 calls; 250 of 1,000 tokens admitted (25 %)" in lines[0]
    rows = [" ".join(line.split()) for line in lines]
    assert "MODEL VERSION STATE FROM TO PRECISION DEVICE SHA256 QUEUED TOKENS" in rows
    assert "en-de 2 77 up 5 20 64 0 250 ms" in rows
    assert "1.2 s 0 ms Translate en-de shop (key) r1" in rows
    assert "0 ms 0 ms 10.0.0.7" in rows  # of a server that does not say how it knows its clients
    assert any("weights.data is truncated" in row for row in rows)


def test_json_has_every_field_and_numbers_as_numbers(admin):
    answer = json.loads(run("--server", admin[1], "--json").stdout)

    assert (answer["state"], answer["queued_work_s"]) == ("degraded", 0.0)
    assert answer["models"][0]["queued_tokens"] == 1 << 40
    assert answer["models"][0]["engines"][0]["restarts"] == 0


def test_address_and_api_key_of_the_environment_are_used(admin):
    servicer, address = admin

    result = run("--requests", "7", DRAGOMAN_ADMIN_SERVER=address, DRAGOMAN_API_KEY="k1")

    assert "en-de" in result.stdout
    ((num_requests, metadata),) = servicer.asked
    assert (num_requests, metadata["authorization"]) == (7, "Bearer k1")


def test_where_no_admin_port_answers_the_error_says_how_to_switch_it_on():
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    other, nobody = run("--server", f"127.0.0.1:{port}"), run("--server", "127.0.0.1:1")
    server.stop(None).wait()

    assert f"127.0.0.1:{port} has no admin service there" in other.stderr
    assert "no admin port answers at 127.0.0.1:1" in nobody.stderr
    for result in (other, nobody):
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
        assert "dragoman serve --admin-port 50052" in result.stderr
