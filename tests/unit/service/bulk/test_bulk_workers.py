"""Bulk workers: what they ask of a server, and which answers they take."""

import asyncio
import pickle
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from service.bulk import workers
from service.bulk.workers import OtherVersion, ServerWorker, batches_in_order, require_version
from service.cli.options import Connection
from service.client.channel import ClientConfig
from service.errors import DeadlineExceeded, InternalError, InvalidInput, Overloaded, TooLong, Unavailable
from service.grpc.status import to_wire
from service.records import TranslateOptions, Translation
from tests.fakes.scripted_server import Context, failing, failing_first, running, shout

__all__ = ["running"]

SERVING = health_pb2.HealthCheckResponse.SERVING


def counted(batch: list[str]) -> list[Translation]:
    """Says with how many tokens each text came, for want of a translation."""
    return [Translation(source_tokens=int(text)) for text in batch]


def numbers(batches: Iterable[Sequence[Translation]]) -> list[int]:
    return [item.source_tokens for translations in batches for item in translations]


@pytest.mark.parametrize(("batch_size", "max_calls"), [(1, 1), (3, 2), (4, 8), (100, 3)])
def test_batches_come_in_order(batch_size, max_calls):
    batches = batches_in_order(map(str, range(20)), counted, batch_size, max_calls)

    assert numbers(batches) == list(range(20))


def test_calls_are_under_way_at_the_same_time():
    together = threading.Barrier(3, timeout=20)  # breaks unless three calls meet

    def meet(batch: list[str]) -> list[Translation]:
        together.wait()
        return counted(batch)

    assert numbers(batches_in_order(map(str, range(6)), meet, 1, 3)) == list(range(6))


def test_texts_are_read_no_further_than_the_calls_need():
    texts = iter(map(str, range(100)))
    batches = batches_in_order(texts, counted, 2, 3)

    next(batches)
    batches.close()

    assert next(texts) == "6"


def test_a_call_that_fails_ends_it():
    def fail(batch: list[str]) -> list[Translation]:
        raise Unavailable("gone")

    with pytest.raises(Unavailable, match="gone"):
        next(batches_in_order(["1"], fail, 1, 2))


def test_another_version_than_the_job_began_with_is_refused():
    require_version("1", "1", "here")
    require_version(None, "2", "here")
    with pytest.raises(OtherVersion, match="version 2 answers, and the job was begun with 1"):
        require_version("1", "2", "here")


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


def test_files_of_a_connection_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    connection = Connection(ca=Path("ca.pem"), api_key_file=Path("key")).absolute()

    assert (connection.ca, connection.api_key_file, connection.cert) == (tmp_path / "ca.pem", tmp_path / "key", None)


class TestServerWorker:
    async def test_calls_are_batch_work_for_the_model_of_the_job(self, running):
        worker = ServerWorker(address=running.address, client_config=ClientConfig, options=TranslateOptions())

        translations = await asyncio.to_thread(lambda: list(replace(worker, model="loud")()(["a", "b"])))

        assert [item.text for item in translations] == ["A", "B"]
        (request,) = running.service.requests
        assert (request.priority, request.model) == (pb.PRIORITY_BATCH, "loud")

    async def test_room_is_waited_for_longer_than_the_retry_policy_says(self, running, capsys):
        refusal = to_wire(Overloaded("no room", reason="queue_full", retry_after_s=0.01))
        running.service.handler = failing_first(2, refusal.code, refusal.trailers)
        worker = ServerWorker(
            address=running.address, client_config=ClientConfig, options=TranslateOptions(), max_outage_s=0.0
        )

        translations = await asyncio.to_thread(lambda: list(worker()(["a"])))

        assert [item.text for item in translations] == ["A"]
        assert len(running.service.requests) == 3
        assert capsys.readouterr().err == "waiting, until there is room: not yet\n"

    @pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"])
    async def test_other_failures_that_pass_are_waited_for_here_and_not_by_grpc(self, running, capsys, code):
        running.service.handler = failing_first(1, grpc.StatusCode[code])
        worker = ServerWorker(address=running.address, client_config=ClientConfig, options=TranslateOptions())

        translations = await asyncio.to_thread(lambda: list(worker()(["a"])))

        assert [item.text for item in translations] == ["A"]
        assert len(running.service.requests) == 2
        assert capsys.readouterr().err == "waiting, at most 300 s (--max-outage): not yet\n"

    async def test_text_too_large_for_a_message_has_its_own_error_and_the_others_their_translations(self, running):
        config = ClientConfig(max_message_bytes=200)
        worker = ServerWorker(
            address=running.address, client_config=lambda: config, options=TranslateOptions(), max_outage_s=0.0
        )

        translations = await asyncio.to_thread(lambda: list(worker()(["a", "b" * 300, "c", "d"])))

        assert [item.error and type(item.error) for item in translations] == [None, TooLong, None, None]
        assert "larger than max" in str(translations[1].error)
        assert [item.text for item in translations if item.error is None] == ["A", "C", "D"]
        assert [len(request.texts) for request in running.service.requests] == [4, 2, 1, 1, 2]

    @pytest.mark.parametrize(
        "error",
        [
            InvalidInput("texts has so many entries", field="texts"),
            Overloaded("no memory", reason="out_of_memory", retry_after_s=0.01),
            DeadlineExceeded("the limit of 60 s passed"),
        ],
    )
    async def test_batch_is_sent_once_and_halved_until_the_server_takes_it(self, running, error):
        refusal = to_wire(error)

        async def take_two(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
            refuse = failing(refusal.code, refusal.message, refusal.trailers)
            return await (refuse if len(request.texts) > 2 else shout)(request, context)

        running.service.handler = take_two
        worker = ServerWorker(
            address=running.address, client_config=ClientConfig, options=TranslateOptions(), max_outage_s=0.0
        )

        translations = await asyncio.to_thread(lambda: list(worker()("abcdefg")))

        assert "".join(item.text for item in translations) == "ABCDEFG"
        assert [len(request.texts) for request in running.service.requests] == [7, 3, 1, 2, 4, 2, 2]

    async def test_server_that_stays_away_ends_the_run(self, running):
        await running.server.stop(grace=None)
        worker = ServerWorker(
            address=running.address, client_config=ClientConfig, options=TranslateOptions(), max_outage_s=0.5
        )

        with pytest.raises(Unavailable):
            await asyncio.to_thread(lambda: list(worker()(["a"])))

    async def test_a_version_that_comes_in_the_middle_of_a_file_ends_the_run(self, running):
        versions = iter(["1", "1", "2"])

        async def reloaded(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
            response = await shout(request, context)
            response.model_version = next(versions)
            return response

        running.service.handler = reloaded
        worker = ServerWorker(
            address=running.address,
            client_config=ClientConfig,
            options=TranslateOptions(),
            model_version="1",
            batch_size=1,
            max_calls=1,
        )
        taken: list[str] = []

        def translate() -> None:
            taken.extend(item.text for item in worker()(["a", "b", "c"]))

        with pytest.raises(OtherVersion, match="version 2 answers, and the job was begun with 1"):
            await asyncio.to_thread(translate)
        assert len(running.service.requests) == 3

    @pytest.mark.parametrize(
        ("wait_s", "max_outage_s", "waited"), [(0.2, 300.0, "0.2 s"), (30.0, 0.3, "0.3 s"), (30.0, 0.0, "0.1 s")]
    )
    async def test_start_waits_no_longer_than_an_outage_may_last(
        self, running, monkeypatch, wait_s, max_outage_s, waited
    ):
        monkeypatch.setattr(workers, "_CONNECT_S", 0.1)
        await running.server.stop(grace=None)
        worker = ServerWorker(
            address=running.address,
            client_config=ClientConfig,
            options=TranslateOptions(),
            wait_s=wait_s,
            max_outage_s=max_outage_s,
        )

        with pytest.raises(Unavailable, match=f"no server was ready at {running.address} within {waited}"):
            await asyncio.to_thread(worker.info)

    async def test_server_that_is_there_is_met_without_patience_too(self, running):
        await running.health.set("", SERVING)
        worker = ServerWorker(
            address=running.address, client_config=ClientConfig, options=TranslateOptions(), max_outage_s=0.0
        )

        assert (await asyncio.to_thread(worker.info)).name == "loud"

    async def test_answer_with_a_translation_too_few_ends_the_run(self, running):
        async def forgetful(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
            response = await shout(request, context)
            response.translations.pop()
            return response

        running.service.handler = forgetful
        worker = ServerWorker(address=running.address, client_config=ClientConfig, options=TranslateOptions())

        with pytest.raises(InternalError, match="2 translations for 3 texts"):
            await asyncio.to_thread(lambda: list(worker()(["a", "b", "c"])))
        assert len(running.service.requests) == 1
