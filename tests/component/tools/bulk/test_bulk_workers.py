"""Bulk workers against an in-process server: what they ask of it, which answers they take, and how late calls end."""

import asyncio
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from service.cli.options import Connection
from service.client.channel import ClientConfig
from service.records import TranslateOptions, Translation
from service.tools.bulk.workers import OtherVersion, ServerWorker, batches_in_order
from tests.fakes.scripted_server import Context, failing_first, running, shout

__all__ = ["running"]

SERVING = health_pb2.HealthCheckResponse.SERVING


class TestBatches:
    @staticmethod
    def counted(batch: list[str]) -> list[Translation]:
        """Say with how many tokens each text came, for want of a translation."""
        return [Translation(source_tokens=int(text)) for text in batch]

    @staticmethod
    def numbers(batches: Iterable[Sequence[Translation]]) -> list[int]:
        return [item.source_tokens for translations in batches for item in translations]

    @pytest.mark.parametrize(("batch_size", "max_calls"), [(1, 1), (3, 2), (4, 8), (100, 3)])
    def test_batches_come_in_order(self, batch_size, max_calls):
        batches = batches_in_order(map(str, range(20)), self.counted, batch_size, max_calls)

        assert self.numbers(batches) == list(range(20))


@pytest.mark.parametrize("from_file", [True, False])
def test_the_api_key_does_not_travel_with_the_worker(tmp_path, monkeypatch, from_file):
    monkeypatch.setenv("DRAGOMAN_API_KEY", "geheim")
    (tmp_path / "key").write_text("geheim\n")
    connection = Connection(api_key_file=tmp_path / "key" if from_file else None)
    worker = ServerWorker(address="x:1", client_config=connection.client_config, options=TranslateOptions())

    travelled = pickle.dumps(worker)

    assert b"geheim" not in travelled
    assert "geheim" not in repr(worker)
    assert pickle.loads(travelled).client_config().api_key == "geheim"


@pytest.fixture
def worker(running) -> ServerWorker:
    return ServerWorker(address=running.address, client_config=ClientConfig, options=TranslateOptions())


async def translated(worker: ServerWorker, texts: Iterable[str]) -> list[Translation]:
    return await asyncio.to_thread(lambda: list(worker.open()(texts)))


def sizes(running) -> list[int]:
    return [len(request.texts) for request in running.service.requests]


async def test_calls_are_batch_work_for_the_model_of_the_job(running, worker):
    translations = await translated(replace(worker, model="loud"), ["a", "b"])

    assert [item.text for item in translations] == ["A", "B"]
    (request,) = running.service.requests
    assert (request.priority, request.model) == (pb.PRIORITY_BATCH, "loud")


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"])
async def test_other_failures_that_pass_are_waited_for_here_and_not_by_grpc(running, worker, capsys, code):
    running.service.handler = failing_first(1, grpc.StatusCode[code])

    translations = await translated(worker, ["a"])

    assert ([item.text for item in translations], sizes(running)) == (["A"], [1, 1])
    assert capsys.readouterr().err == "waiting, at most 300 s (--max-outage): not yet\n"


async def test_a_version_that_comes_in_the_middle_of_a_file_ends_the_run(running, worker):
    versions = iter(["1", "1", "2"])

    async def reloaded(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
        response = await shout(request, context)
        response.model_version = next(versions)
        return response

    running.service.handler = reloaded

    with pytest.raises(OtherVersion, match="version 2 answers, and the job was begun with 1"):
        await translated(replace(worker, model_version="1", batch_size=1, max_calls=1), ["a", "b", "c"])
    assert sizes(running) == [1, 1, 1]


class TestLateCalls:
    async def test_batch_that_the_client_s_own_clock_ends_is_halved_while_the_server_serves(self, running, worker):
        async def too_slow_for_three(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
            if len(request.texts) > 2:
                await asyncio.Event().wait()  # until the client takes the call back
            return await shout(request, context)

        running.service.handler = too_slow_for_three

        translations = await translated(replace(worker, timeout_s=1.0, max_outage_s=0.0), "abcd")

        assert "".join(item.text for item in translations) == "ABCD"
        assert sizes(running) == [4, 2, 2]
