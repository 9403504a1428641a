"""The admin port of a real server, and that no other port answers for it."""

import json
import os
import signal
import subprocess
import sys

import grpc
import grpc.aio
import pytest

from protos import admin_pb2 as pb
from tests.fakes.calls import calling, code_of, details_of, eventually, failure, words
from tests.fakes.echo_bundle import ModelRepository, tamper
from tests.fakes.server_process import ServerProcess

SERVICE = "/dragoman.admin.v1.AdminService"
ADMIN = {"DRAGOMAN_LISTEN__ADMIN_PORT": "0"}


async def status_of(server: ServerProcess) -> pb.GetStatusResponse:
    async with calling(server.admin_address) as calls:
        return pb.GetStatusResponse.FromString(await calls.method(f"{SERVICE}/GetStatus")(b"", timeout=120.0))


async def test_there_is_no_admin_port_unless_it_is_asked_for(server):
    assert server.admin_port == 0


@pytest.mark.parametrize("method", ["GetStatus", "ReloadModels", "SetLogLevel"])
async def test_the_data_port_knows_nothing_of_it(start_server, method):
    server = start_server(**ADMIN)
    async with calling(server.address) as calls:
        assert await code_of(calls.method(f"{SERVICE}/{method}")(b"")) is grpc.StatusCode.UNIMPLEMENTED
    async with calling(server.admin_address) as calls:
        assert await code_of(calls.translate("a")) is grpc.StatusCode.UNIMPLEMENTED

    await eventually(lambda: server.metric("dragoman_requests_received_total", method="_other") == 2)


async def test_status_shows_a_call_at_work_and_what_it_waits_for(start_server):
    server = start_server(**ADMIN)
    at_rest = await status_of(server)
    async with calling(server.address) as calls:
        with server.held():
            call = calls.translate(words(200), "", words(200), metadata=(("x-request-id", "mine"),))
            await eventually(lambda: server.metric("dragoman_running_jobs") == 2)
            at_work = await status_of(server)
        call.cancel()

    assert (at_rest.state, at_rest.pid, at_rest.log_level) == ("serving", server.process.pid, "info")
    (model,) = at_rest.models
    assert (model.name, model.state, model.source_language) == ("echo", "serving", "en")
    assert [(engine.state, engine.jobs) for engine in model.engines] == [("up", 0)]
    assert at_rest.num_requests == 0  # it does not count itself
    (translate,) = at_work.requests
    assert (translate.request_id, translate.model, translate.phase) == ("mine", "echo", "decode")
    assert (translate.texts, translate.finished_texts) == (3, 1)  # the blank one
    assert at_work.admitted_tokens > 400
    assert (at_work.models[0].engines[0].jobs, at_work.models[0].engines[0].pid) == (2, server.engine_pids()[0])


async def test_reload_loads_what_is_new_and_names_what_is_refused(start_server, tmp_path):
    repository = ModelRepository(tmp_path / "models")
    repository.put("echo", "1")
    server = start_server(DRAGOMAN_MODELS__DIRECTORY=str(repository.directory), **ADMIN)
    async with calling(server.admin_address) as calls:
        reload = calls.method(f"{SERVICE}/ReloadModels")
        repository.put("echo", "2")
        answer = pb.ReloadModelsResponse.FromString(await reload(b""))
        repository.put_bad("echo", "3", tamper)
        error = await failure(reload(b""))

    assert [(change.version, change.result) for change in answer.changes] == [("2", "loaded"), ("1", "retired")]
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "encoder.onnx has another SHA-256" in details_of(error)
    models = {model.version: (model.state, model.reason) for model in (await status_of(server)).models}
    assert models["2"] == ("serving", "")
    assert models["3"][0] == "refused"
    assert "another SHA-256" in models["3"][1]


def dragoman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_an_operator_s_commands_reach_a_running_server(start_server):
    server = start_server(**ADMIN)
    address = ("--server", server.admin_address)
    status, level, reload = (
        dragoman("status", "--json", *address),
        dragoman("log-level", "error", *address),
        dragoman("reload", *address),
    )

    assert json.loads(status.stdout)["models"][0]["name"] == "echo"
    assert (level.returncode, level.stdout) == (0, "info -> error\n")
    assert (reload.returncode, reload.stdout) == (0, "echo 1.2.3: unchanged\n")


async def test_sigusr1_shows_where_calls_wait_and_disturbs_nothing(start_server):
    server = start_server()
    async with calling(server.address) as calls:
        with server.held():
            pending = calls.translate("geheim und lang " * 8 + "hier")
            await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
            for pid in (server.process.pid, *server.engine_pids()):
                os.kill(pid, signal.SIGUSR1)
            await eventually(lambda: "stack_dump" in server.log_text())
            await eventually(lambda: server.log_text().count("most recent call first") >= 4)
        answer = await pending
    log = server.log_text()

    assert answer.translations[0].hypotheses[0].text == "geheim und lang " * 8 + "hier"
    assert "service/api/grpc/dragoman.py" in log  # of the call itself
    assert "service/translate/translator.py" in log
    assert "service/engine/worker.py" in log
    assert "geheim" not in log
