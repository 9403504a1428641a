"""Dragoman on Ray Serve, two replicas: the same answers and the same promises as without Ray."""

import asyncio
from collections import Counter

import grpc
import pytest

from model.bundle import default_bundle_dir
from protos import translation_pb2 as pb
from service.client.client import AsyncClient
from service.models.local import LocalTranslator
from service.translation import TranslateOptions
from tests.fakes.calls import TRANSLATE, calling, code_of, error_info, eventually, failure, trailer
from tests.fakes.own_text import own_sentences
from tests.fakes.serve_on_ray import Deployed, deployed
from tests.fakes.server_process import environment

pytest.importorskip("ray.serve", reason="needs the extra ray: make try-ray")

LONG = "x" * 200  # seconds
MAX_CALLS = 8  # of a replica
MOST_CALLS = 50 * MAX_CALLS  # until both replicas have had one: which of them gets it is Serve's to say
SETTINGS = {
    "listen.http": True,  # on a free port, to look inside
    "limits.max_concurrent_requests": MAX_CALLS,
    "limits.retry_after_s": 0.25,
}
WITHIN_S = 90.0  # only catches a hang

# Ray alone takes most of the time to start and stop.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def ray_serve(echo_bundle):
    variables = environment(echo_bundle, ECHO_STEP_S="0.01", RAY_USAGE_STATS_ENABLED="0")
    del variables["DRAGOMAN_LISTEN__GRPC_PORT"]  # a replica sets that itself
    with deployed(2, SETTINGS, variables) as application:
        yield application


def total(application: Deployed, name: str, **labels: str) -> float:
    return sum(server.metric(name, **labels) for server in application.servers())


def answered(application: Deployed) -> dict[int, float]:
    """How many calls each server has had, by its process."""
    method = TRANSLATE[1:]
    return {
        server.process.pid: server.metric("dragoman_requests_total", method=method) for server in application.servers()
    }


async def test_our_client_and_plain_grpc_get_the_bundle_s_translations(ray_serve):
    sentences = list(own_sentences(20))
    async with AsyncClient(ray_serve.address) as client, calling(ray_serve.address) as calls:
        (model,) = await client.models()
        await client.wait_until_ready(WITHIN_S)
        reply = await client.translate(sentences, options=TranslateOptions(beam_size=2))
        streamed = dict([pair async for pair in client.translate_stream(sentences)])

        assert (model.name, reply.model_version) == ("echo", "1.2.3")
        assert [translation.text for translation in reply.translations] == sentences
        assert [streamed[number].text for number in range(len(sentences))] == sentences
        assert await calls.texts(*sentences) == sentences


async def test_load_reaches_both_replicas(ray_serve):
    before, reached, codes = answered(ray_serve), set[int](), Counter[grpc.StatusCode]()
    async with calling(ray_serve.address) as calls:
        while len(reached) < 2 and codes.total() < MOST_CALLS:
            codes += Counter(await asyncio.gather(*(code_of(calls.translate("some words")) for _ in range(MAX_CALLS))))
            reached = {pid for pid, count in answered(ray_serve).items() if count > before.get(pid, 0.0)}

    assert set(codes) == {grpc.StatusCode.OK}
    assert len(reached) == 2, f"{codes.total()} calls went to {len(reached)} replica"


async def test_a_refusal_of_full_replicas_says_why_and_when_to_come_back(ray_serve):
    async with calling(ray_serve.address) as calls:
        started = [calls.translate("x" * 50) for _ in range(4 * MAX_CALLS)]
        codes = Counter([await code_of(call) for call in started])
        (refused, *_) = [call for call in started if await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED]
        error = await failure(refused)

    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert codes[grpc.StatusCode.OK] >= MAX_CALLS
    assert (error_info(error).domain, error_info(error).reason) == ("dragoman", "queue_full")
    assert trailer(error, "grpc-retry-pushback-ms") == "250"


async def test_a_message_that_is_none_is_an_invalid_argument(ray_serve):
    async with calling(ray_serve.address) as calls:
        error = await failure(calls.send_bytes(b"\xff\xff"))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "the request is not a valid dragoman.v1.TranslateRequest message"


async def test_the_replica_knows_the_deadline_and_keeps_it(ray_serve):
    before = total(ray_serve, "dragoman_requests_total", code="DEADLINE_EXCEEDED")
    async with calling(ray_serve.address) as calls:
        error = await failure(calls.translate(LONG, timeout=0.5))

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: total(ray_serve, "dragoman_requests_total", code="DEADLINE_EXCEEDED") == before + 1)
    await eventually(lambda: total(ray_serve, "dragoman_running_jobs") == 0)


async def test_a_call_and_a_stream_that_are_left_free_their_rows(ray_serve):
    async with calling(ray_serve.address) as calls:
        call, stream = calls.translate(LONG), calls.translate_stream()
        await stream.write(pb.TranslateStreamRequest(texts=[pb.StreamText(text=LONG)]))
        await eventually(lambda: total(ray_serve, "dragoman_running_jobs") == 2)

        call.cancel()
        stream.cancel()

        await eventually(lambda: total(ray_serve, "dragoman_running_jobs") == 0)
        await eventually(lambda: total(ray_serve, "dragoman_streams") == 0)


async def translate_until(ended: asyncio.Event, address: str) -> int:
    """Number of answers that clients got, each of them the right one."""
    async with AsyncClient(address) as client:

        async def caller(number: int) -> int:
            done = 0
            while not ended.is_set():
                text = f"{number} text {done}"
                reply = await client.translate([text])
                assert reply.translations[0].text == text
                done += 1
            return done

        return sum(await asyncio.gather(*(caller(number) for number in range(MAX_CALLS // 2))))


@pytest.mark.parametrize("victim", ["replica", "server"])
async def test_a_killed_process_costs_a_client_nothing_and_comes_back(ray_serve, victim):
    ended = asyncio.Event()
    load = asyncio.create_task(translate_until(ended, ray_serve.address))
    await eventually(lambda: total(ray_serve, "dragoman_running_jobs") > 1)
    server = ray_serve.servers()[0].process

    (server.parent() if victim == "replica" else server).kill()

    await eventually(lambda: len(ray_serve.pids() - {server.pid}) == 2, WITHIN_S)
    await eventually(lambda: not server.is_running(), WITHIN_S)
    ended.set()
    assert await load > 0


async def test_a_replica_that_is_taken_away_finishes_its_calls(ray_serve):
    async with calling(ray_serve.address) as calls:
        under_way = [asyncio.ensure_future(calls.texts(LONG)) for _ in range(4)]
        await eventually(lambda: total(ray_serve, "dragoman_running_jobs") == 4)

        await asyncio.to_thread(ray_serve.redeploy, 1, SETTINGS)

        assert await asyncio.gather(*under_way) == [[LONG]] * 4
        await eventually(lambda: len(ray_serve.servers()) == 1, WITHIN_S)
        assert await calls.texts("still here") == ["still here"]


async def test_the_included_model_translates_as_it_does_without_ray(ray_serve):
    sentences = list(own_sentences(20))
    model = {"engine.bundle": str(default_bundle_dir()), "engine.runner_factory": "service.engine.runner:create_runner"}

    await asyncio.to_thread(ray_serve.redeploy, 1, {**SETTINGS, **model})

    async with AsyncClient(ray_serve.address) as client:
        reply = await client.translate(sentences)
    expected = LocalTranslator.open(default_bundle_dir(), threads=1).translate_all(sentences)
    assert [translation.text for translation in reply.translations] == [translation.text for translation in expected]
