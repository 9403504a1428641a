"""The included English-German model in a real engine, with bad input beside good."""

import pytest

from model.bundle import default_bundle_dir
from tests.fakes.calls import calling
from tests.fakes.server_process import start

GOOD = ["The children are playing in the garden.", "It is raining."]
BAD = ["", "x" * 100_000, "\ufdfa" * 5_000, "\x00\x01", "\u202e\u200b"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    engine = {"RUNNER_FACTORY": "service.engine.process:create_runner", "THREADS": "1"}
    variables = {f"DRAGOMAN_ENGINE__{name}": value for name, value in engine.items()}
    running = start(default_bundle_dir(), tmp_path_factory.mktemp("server"), **variables)
    yield running
    running.process.kill()
    running.process.wait()


async def test_translations_are_the_same_alone_and_beside_bad_texts(server):
    async with calling(server.address) as calls:
        alone = await calls.translate(*GOOD, source_language="en", target_language="de")
        beside = await calls.translate(GOOD[0], *BAD, GOOD[1])

    texts = [translation.hypotheses[0].text for translation in alone.translations]
    assert [beside.translations[place].hypotheses[0].text for place in (0, -1)] == texts
    for source, translation in zip(GOOD, alone.translations, strict=True):
        (hypothesis,) = translation.hypotheses
        assert translation.status.code == 0
        assert hypothesis.text not in ("", source)
        assert hypothesis.score < 0.0
