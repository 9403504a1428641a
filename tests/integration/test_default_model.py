"""en-de in a real engine, bad input beside good, and an engine that dies."""

import asyncio
import os
import signal

import grpc
import pytest

from model.bundle import default_bundle_dir
from protos import translation_pb2 as pb
from tests.fakes.calls import calling, code_of, eventually
from tests.fakes.server_process import start

GOOD = ["The children are playing in the garden.", "It is raining."]
REAL_ENGINE = {
    "DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.process:create_runner",
    "DRAGOMAN_ENGINE__THREADS": "1",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(default_bundle_dir(), tmp_path_factory.mktemp("server"), **REAL_ENGINE)
    yield running
    running.process.kill()
    running.process.wait()


async def test_sentences_are_translated(server):
    async with calling(server.address) as calls:
        response = await calls.translate(*GOOD, source_language="en", target_language="de")

    for source, translation in zip(GOOD, response.translations, strict=True):
        (hypothesis,) = translation.hypotheses
        assert translation.status.code == 0
        assert hypothesis.text not in ("", source)
        assert hypothesis.score < 0.0


@pytest.mark.parametrize("bad", ["", "x" * 100_000, "\ufdfa" * 5_000, "\x00\x01", "\u202e\u200b"])
async def test_translations_are_the_same_beside_a_bad_text(server, bad):
    async with calling(server.address) as calls:
        alone = await calls.texts(*GOOD)

        response = await calls.translate(GOOD[0], bad, GOOD[1])

    beside = [response.translations[index].hypotheses[0].text for index in (0, 2)]
    assert beside == alone


async def test_beams_and_hypotheses_are_those_asked_for(server):
    async with calling(server.address) as calls:
        response = await calls.translate(GOOD[0], options=pb.TranslateOptions(beam_size=5, num_hypotheses=3))

    hypotheses = response.translations[0].hypotheses
    assert len(hypotheses) == len({hypothesis.text for hypothesis in hypotheses}) == 3
    assert sorted((item.score for item in hypotheses), reverse=True) == [item.score for item in hypotheses]


async def test_calls_are_served_again_after_the_engine_was_killed_under_load(server):
    async with calling(server.address) as calls:
        before = await calls.texts(*GOOD)
        long = " ".join(GOOD * 4)  # two seconds for all of them on two cores
        held = [asyncio.create_task(code_of(calls.translate(*[long] * 10))) for _ in range(16)]
        await eventually(lambda: server.metric("dragoman_running_jobs") > 0)
        (engine,) = server.engine_pids()

        os.kill(engine, signal.SIGKILL)

        codes = set(await asyncio.gather(*held))
        assert grpc.StatusCode.UNAVAILABLE in codes
        assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK}
        assert await calls.texts(*GOOD) == before
