"""Late calls of a bulk run: a server that lives gets smaller batches, one that hangs is away."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from service.bulk.patience import late_if_alive
from service.bulk.workers import ServerWorker
from service.client.channel import ClientConfig
from service.errors import DeadlineExceeded, DragomanError, Overloaded, Unavailable
from service.grpc.status import to_wire
from service.records import TranslateOptions
from tests.fakes.scripted_server import Context, failing_first, running, shout

__all__ = ["running"]

LATE = DeadlineExceeded("60 s")
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def failing(error: DragomanError) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def not_asked() -> None:
    pytest.fail("the server is asked")


def test_late_call_of_a_server_that_serves_was_late():
    with pytest.raises(DeadlineExceeded, match="60 s"):
        late_if_alive(failing(LATE), lambda: None)


def test_late_call_of_a_server_that_does_not_serve_is_an_outage_and_says_why():
    with pytest.raises(Unavailable) as caught:
        late_if_alive(failing(LATE), failing(Unavailable("nobody there")))

    assert str(caught.value) == "a call was late (60 s), and nobody there"


def test_server_that_refuses_the_question_lives():
    refused = Overloaded("too many streams", reason="streams", retry_after_s=1.0)

    with pytest.raises(DeadlineExceeded):
        late_if_alive(failing(LATE), failing(refused))


@pytest.mark.parametrize("error", [Unavailable("gone"), Overloaded("full", reason="queue_full", retry_after_s=1.0)])
def test_only_late_calls_raise_the_question(error):
    with pytest.raises(type(error), match=str(error)):
        late_if_alive(failing(error), not_asked)
    assert late_if_alive(lambda: "answer", not_asked) == "answer"


class TestServerWorker:
    @pytest.fixture
    def worker(self, running) -> ServerWorker:
        return ServerWorker(address=running.address, client_config=ClientConfig, options=TranslateOptions())

    async def test_batch_that_the_client_s_own_clock_ends_is_halved_while_the_server_serves(self, running, worker):
        async def too_slow_for_three(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
            if len(request.texts) > 2:
                await asyncio.Event().wait()  # until the client takes the call back
            return await shout(request, context)

        running.service.handler = too_slow_for_three
        hasty = replace(worker, timeout_s=1.0, max_outage_s=0.0)

        translations = await asyncio.to_thread(lambda: list(hasty()("abcd")))

        assert "".join(item.text for item in translations) == "ABCD"
        assert [len(request.texts) for request in running.service.requests] == [4, 2, 2]

    @pytest.mark.parametrize("trailers", [to_wire(LATE).trailers, ()])
    async def test_server_that_does_not_serve_gets_the_whole_batch_again_whoever_called_it_late(
        self, running, worker, trailers
    ):
        await running.health.set("", NOT_SERVING)
        running.service.handler = failing_first(1, grpc.StatusCode.DEADLINE_EXCEEDED, trailers)
        said: list[str] = []

        translations = await asyncio.to_thread(lambda: list(replace(worker, ready_s=0.2)(said.append)("abc")))

        assert "".join(item.text for item in translations) == "ABC"
        assert [len(request.texts) for request in running.service.requests] == [3, 3]
        (line,) = said
        assert line.startswith("waiting, at most 300 s (--max-outage): a call was late (not yet), ")
        assert line.endswith(f", and no server was ready at {running.address} within 0.2 s")
