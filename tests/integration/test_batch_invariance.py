"""A sentence's translation does not depend on who else is being translated: the real server, the trained model.

Different sentences with beams of 1, 2, 4, 5 and 8 and with decoding options, sent by 64 clients at once.  Text, score
and length of every answer must be those the sentence gets alone.
"""

import asyncio
import random
from pathlib import Path

import pytest

from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.local import LocalTranslator
from service.records import TranslatedText, TranslateOptions, Translation
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start
from tests.parity.model_pair import num_sentences

OPTIONS = (
    *(TranslateOptions(beam_size=beam_size) for beam_size in (1, 2, 4, 5, 8)),
    TranslateOptions(no_repeat_ngram_size=2),
    TranslateOptions(min_target_tokens=12, suppressed_phrases=("der", "ein Hund", "und")),
    TranslateOptions(beam_size=1, sampling_top_k=50, sampling_top_p=0.9, sampling_seed=7),
    TranslateOptions(beam_size=2, num_hypotheses=2, return_alternatives=True),
)
NUM_CLIENTS = 64
REAL_ENGINE = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner"}

Text = tuple[str, TranslateOptions]  # a sentence and how to search
Texts = list[Text]
Answers = dict[Text, list[tuple[TranslatedText, ...]]]  # of each segment


@pytest.fixture(scope="module")
def texts() -> Texts:
    return [(text, OPTIONS[index % len(OPTIONS)]) for index, text in enumerate(own_sentences(num_sentences(100)))]


@pytest.mark.promise("D10")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ["int8", pytest.param("fp32", marks=pytest.mark.thorough)])
def test_answers_among_64_clients_are_those_of_each_sentence_alone(precision, trained_bundles, texts, tmp_path):
    bundle = trained_bundles[precision]
    alone = translate_alone(bundle, texts)
    with start(bundle, tmp_path, DRAGOMAN_ENGINE__PRECISION=precision, **REAL_ENGINE) as server:
        rows, together = asyncio.run(translate_together(server, texts))

    assert [text for text in texts if together[text] != alone[text]] == []
    assert rows >= NUM_CLIENTS


def found(translation: Translation) -> list[tuple[TranslatedText, ...]]:
    """What the engine has found; the score of a text with several segments is a mean, and rounded on the way."""
    assert translation.segments
    return [segment.hypotheses for segment in translation.segments]


def translate_alone(bundle: Path, texts: Texts) -> Answers:
    translator = LocalTranslator.open(bundle, threads=1, window=1)
    return {(text, options): found(next(translator.translate_all([text], options))) for text, options in texts}


async def translate_together(server: ServerProcess, texts: Texts) -> tuple[float, Answers]:
    """Return the most live rows that were seen, and the answers."""
    waiting = iter(random.Random(2).sample(texts, len(texts)))
    answers: Answers = {}
    rows: list[float] = []

    async def work(client: AsyncClient) -> None:
        for text, options in waiting:
            reply = await client.translate([text], options=options)
            answers[text, options] = found(reply.translations[0])

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.05)
            rows.append(await asyncio.to_thread(server.metric, "dragoman_live_rows"))

    clients = [AsyncClient(server.address, ClientConfig(timeout_s=120.0)) for _ in range(NUM_CLIENTS)]
    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(work(client) for client in clients))
    watcher.cancel()
    await asyncio.gather(*(client.close() for client in clients))
    return max(rows), answers
