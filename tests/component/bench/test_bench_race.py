"""Both sides of the race give the same translations of the same weights, in every regime."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from bench.race.dragoman import EngineSetting, OurSide
from bench.race.peer_ctranslate2 import PeerSetting, TheirSide
from bench.race.regimes import Streaming, closed, one_at_a_time
from bench.race.text import Sentence, batches
from model.bundle import Bundle
from service.engine.job import SearchParams
from tests.fakes.tiny_model import VOCABULARY, random_sentences, state_of, tiny_config, tiny_model, write_tiny_bundle
from tests.parity.ctranslate2_model import token_names, write_ctranslate2_model

PARAMS = SearchParams(beam_size=3, max_target_tokens=12)
SETTING = PeerSetting(compute_type="float32", max_batch_size=4)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    model = tiny_model(tiny_config(vocab_size=VOCABULARY), seed=3)
    bundle = write_tiny_bundle(model, tmp_path_factory.mktemp("race") / "bundle")
    directory = bundle.directory.parent / "ctranslate2"
    write_ctranslate2_model(model.config, state_of(model), bundle.tokenizer_path, directory)
    return bundle


@pytest.fixture(scope="module")
def sentences(bundle: Bundle) -> list[Sentence]:
    names = token_names(bundle.tokenizer_path, VOCABULARY)
    sources = random_sentences(tiny_config(vocab_size=VOCABULARY), range(2, 13))
    return [Sentence(tuple(ids), [names[token] for token in ids]) for ids in sources]


@pytest.fixture
def ours(bundle: Bundle) -> OurSide:
    return OurSide(bundle, "fp32", PARAMS, [(2, 1)])


@pytest.fixture
def theirs(bundle: Bundle) -> TheirSide:
    ids = {name: token for token, name in enumerate(token_names(bundle.tokenizer_path, VOCABULARY))}
    return TheirSide(bundle.directory.parent / "ctranslate2", ids, "fp32", PARAMS, [(2, 1)])


def streamed(server: Streaming, sentences: Sequence[Sentence]) -> list[int]:
    for number, sentence in enumerate(sentences):
        server.submit(number, sentence)
    found: list[int] = []
    while len(found) < len(sentences):
        found += [entry.number for entry in server.finished(10.0)]
    return found


@pytest.mark.parametrize("num_engines", [1, 2])
def test_both_sides_give_the_same_answers(ours, theirs, sentences, num_engines, monkeypatch):
    monkeypatch.setattr("bench.race.regimes.REST_S", 0.0)
    with (
        closing(ours.open(EngineSetting(engines=num_engines, max_rows=6))) as our_engine,
        closing(theirs.open(SETTING)) as their_engine,
    ):
        together = closed(our_engine, their_engine, batches(sentences, 11, 2)).record()
        apart = one_at_a_time(our_engine, their_engine, sentences).record()

    assert (together["identical"], together["sentences"], len(together["peer_s"])) == (1.0, 22, 2)
    assert (apart["identical"], apart["sentences"], len(apart["dragoman_s"])) == (1.0, 11, 11)


@pytest.mark.parametrize("delay_ms", [0.0, 5.0])
def test_streams_answer_every_sentence_once(ours, theirs, sentences, delay_ms):
    servers = [ours.open_streaming(ours.usual), theirs.open_streaming(replace(SETTING, max_delay_ms=delay_ms))]

    for server in servers:
        with closing(server):
            assert sorted(streamed(server, sentences)) == list(range(11))
            assert server.finished(0.0) == []
