"""Both sides of the race give the same translations of the same weights, in every regime."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from model.bundle import Bundle
from service.engine.job import SearchParams
from tests.bench.race.dragoman import EngineSetting, OurSide
from tests.bench.race.peer_ctranslate2 import DynamicBatches, PeerSetting, TheirSide
from tests.bench.race.regimes import Finished, Stream, Streaming, closed, one_at_a_time
from tests.bench.race.text import Sentence, batches
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
    monkeypatch.setattr("tests.bench.race.regimes.REST_S", 0.0)
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


class StubTranslator:
    """Notes what it is given; can fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sizes: list[int] = []

    def translate_batch(self, sources: list[list[str]], **_: Any) -> list[Any]:
        self.sizes.append(len(sources))
        if self.error is not None:
            raise self.error
        return sources


def test_a_dynamic_batch_that_is_full_does_not_wait(sentences):
    stub: Any = StubTranslator()

    with closing(DynamicBatches(stub, replace(SETTING, max_delay_ms=60_000.0), PARAMS)) as server:
        streamed(server, sentences[:8])

    assert stub.sizes == [4, 4]


def test_an_error_in_a_dynamic_batch_reaches_the_caller(sentences):
    stub: Any = StubTranslator(RuntimeError("out of memory"))
    server = DynamicBatches(stub, SETTING, PARAMS)

    with pytest.raises(RuntimeError, match="out of memory"):
        streamed(server, sentences[:1])


class SlowServer:
    """Answers what it has taken 50 ms later."""

    def __init__(self) -> None:
        self._taken: list[int] = []

    def submit(self, number: int, sentence: Sentence) -> None:
        self._taken.append(number)

    def finished(self, timeout_s: float) -> list[Finished]:
        time.sleep(0.05)
        done, self._taken = self._taken, []
        return [Finished(number, time.perf_counter()) for number in done]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("bound_s", "is_sustained"), [(0.01, False), (10.0, True)])
def test_a_rate_costs_more_than_the_bound_where_answers_are_late(sentences, bound_s, is_sustained):
    stream = Stream(sentences, duration_s=0.3, bound_s=bound_s)

    assert (stream.cost_s(100.0, 1, SlowServer()) <= bound_s) == is_sustained
