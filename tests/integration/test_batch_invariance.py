"""A sentence's translation does not depend on who else is being translated: the real server, the trained model.

500 different sentences with beams of 1, 2, 4, 5 and 8, sent by 64 clients at once: in two orders to int8 graphs, in
one to fp32 graphs.  Text, score and length of every answer must be those the sentence gets alone.
"""

import asyncio
import random
from pathlib import Path
from statistics import median

import pytest

from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.local import LocalTranslator
from service.records import TranslateOptions, Translation
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start

BEAM_SIZES = (1, 2, 4, 5, 8)
NUM_CLIENTS = 64
ORDERS = {"int8": (1, 2), "fp32": (1,)}  # seeds
REAL_ENGINE = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.process:create_runner"}

Texts = list[tuple[str, int]]  # a sentence and its beam size


@pytest.fixture(scope="module")
def texts() -> Texts:
    return [(text, BEAM_SIZES[index % len(BEAM_SIZES)]) for index, text in enumerate(own_sentences(500))]


@pytest.mark.promise("D10")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ORDERS)
def test_answers_among_64_clients_are_those_of_each_sentence_alone(precision, trained_bundles, texts, tmp_path):
    bundle = trained_bundles[precision]
    alone = translate_alone(bundle, texts)
    server = start(bundle, tmp_path, DRAGOMAN_ENGINE__PRECISION=precision, **REAL_ENGINE)
    try:
        for seed in ORDERS[precision]:
            rows, together = asyncio.run(translate_together(server, texts, seed))
            different = [text for text in texts if together[text] != alone[text]]
            print(f"{precision}, order {seed}: {len(different)} of {len(texts)} differ, median live rows {rows:.0f}")
            assert different == []
            assert rows >= 64
    finally:
        server.process.kill()
        server.process.wait()


def translate_alone(bundle: Path, texts: Texts) -> dict[tuple[str, int], Translation]:
    translator = LocalTranslator.open(bundle, threads=1, window=1)
    return {
        (text, beam_size): next(translator.translate_all([text], TranslateOptions(beam_size=beam_size)))
        for text, beam_size in texts
    }


async def translate_together(
    server: ServerProcess, texts: Texts, seed: int
) -> tuple[float, dict[tuple[str, int], Translation]]:
    """Median of the live rows seen while all clients are busy, and the answers."""
    order = random.Random(seed).sample(texts, len(texts))
    waiting = iter(order)
    answers: dict[tuple[str, int], Translation] = {}
    rows: list[float] = []

    async def work(client: AsyncClient) -> None:
        for text, beam_size in waiting:
            reply = await client.translate([text], options=TranslateOptions(beam_size=beam_size))
            answers[text, beam_size] = reply.translations[0]

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.05)
            rows.append(await asyncio.to_thread(server.metric, "dragoman_live_rows"))

    clients = [AsyncClient(server.address, ClientConfig(timeout_s=120.0)) for _ in range(NUM_CLIENTS)]
    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(work(client) for client in clients))
    watcher.cancel()
    await asyncio.gather(*(client.close() for client in clients))
    return median(rows), answers
