"""Every contestant of the race gives the same translations of the same weights."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.bundle import Bundle
from model.config import EOS_ID
from tests.bench.race.contestants import Contestant, SearchOptions, Sentence, Streaming
from tests.bench.race.dragoman import EngineHere, EngineProcesses, EngineSetting
from tests.bench.race.peer_ctranslate2 import DynamicBatches, PeerSetting, Translations, open_translator
from tests.bench.race.peer_huggingface import HuggingFace, HuggingFaceSetting, build_model, parameters
from tests.bench.race.shapes import Shape, default_shape
from tests.fakes.tiny_bundle import VOCABULARY, write_tiny_bundle
from tests.fakes.tiny_model import random_sentences, state_of, tiny_config, tiny_model
from tests.parity.ctranslate2_model import token_names, write_ctranslate2_model

OPTIONS = SearchOptions(beam_size=3, max_target_tokens=12)
NUM_SENTENCES = 11


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(tiny_config(vocab_size=VOCABULARY), seed=3)


@pytest.fixture(scope="module")
def shape(model: Any) -> Shape:
    return default_shape(model.config, state_of(model))


@pytest.fixture(scope="module")
def bundle(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(model, tmp_path_factory.mktemp("race") / "bundle")


@pytest.fixture(scope="module")
def names(bundle: Bundle) -> list[str]:
    return token_names(bundle.tokenizer_path, VOCABULARY)


@pytest.fixture(scope="module")
def ctranslate2_dir(shape: Shape, bundle: Bundle) -> Path:
    return write_ctranslate2_model(
        shape.config, shape.state, bundle.tokenizer_path, bundle.directory.parent / "ctranslate2"
    )


@pytest.fixture(scope="module")
def sentences(model: Any, names: list[str]) -> list[Sentence]:
    sources = random_sentences(model.config, range(2, 2 + NUM_SENTENCES))
    return [Sentence(tuple(ids), [names[token] for token in ids]) for ids in sources]


@pytest.fixture(scope="module")
def reference(bundle: Bundle, sentences: list[Sentence]) -> list[list[int]]:
    return translated(EngineHere(bundle, "fp32", EngineSetting(), OPTIONS), sentences)


@pytest.fixture(scope="module")
def engines(bundle: Bundle) -> Iterator[EngineProcesses]:
    with closing(EngineProcesses(bundle, "fp32", EngineSetting(engines=2, max_rows=6), OPTIONS)) as processes:
        yield processes


def translated(contestant: Contestant, sentences: Sequence[Sentence]) -> list[list[int]]:
    return [contestant.tokens(answer) for answer in contestant.translate(sentences)]


def streamed(server: Streaming, sentences: Sequence[Sentence]) -> list[int]:
    for number, sentence in enumerate(sentences):
        server.submit(number, sentence)
    found: list[int] = []
    while len(found) < len(sentences):
        found += [entry.number for entry in server.finished(10.0)]
    return found


def test_engine_processes_give_the_answers_of_one_engine_in_order(
    engines: EngineProcesses, sentences: list[Sentence], reference: list[list[int]]
):
    assert translated(engines, sentences) == reference


def test_engine_processes_answer_every_streamed_sentence_once(engines: EngineProcesses, sentences: list[Sentence]):
    assert sorted(streamed(engines, sentences)) == list(range(NUM_SENTENCES))
    assert engines.finished(0.0) == []


def test_ctranslate2_gives_the_same_answers(
    ctranslate2_dir: Path, names: list[str], sentences: list[Sentence], reference: list[list[int]]
):
    setting = PeerSetting(compute_type="float32", max_batch_size=4)
    ids = {name: token for token, name in enumerate(names)}

    peer = Translations(open_translator(ctranslate2_dir, setting), ids, setting, OPTIONS)

    assert translated(peer, sentences) == reference


@pytest.mark.parametrize("max_delay_ms", [0.0, 5.0])
def test_dynamic_batches_answer_every_sentence_once(
    ctranslate2_dir: Path, sentences: list[Sentence], max_delay_ms: float
):
    setting = PeerSetting(compute_type="float32", inter_threads=2, max_batch_size=4, max_delay_ms=max_delay_ms)

    with closing(DynamicBatches(open_translator(ctranslate2_dir, setting), setting, OPTIONS)) as server:
        assert sorted(streamed(server, sentences)) == list(range(NUM_SENTENCES))
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


def test_a_dynamic_batch_that_is_full_does_not_wait(sentences: list[Sentence]):
    stub: Any = StubTranslator()
    setting = PeerSetting(compute_type="float32", max_batch_size=4, max_delay_ms=60_000.0)

    with closing(DynamicBatches(stub, setting, OPTIONS)) as server:
        streamed(server, sentences[:8])

    assert stub.sizes == [4, 4]


def test_an_error_in_a_dynamic_batch_reaches_the_caller(sentences: list[Sentence]):
    stub: Any = StubTranslator(RuntimeError("out of memory"))
    server = DynamicBatches(stub, PeerSetting(compute_type="float32", max_batch_size=4), OPTIONS)

    with pytest.raises(RuntimeError, match="out of memory"):
        streamed(server, sentences[:1])


def test_pegasus_gets_every_parameter_once(shape: Shape):
    named = parameters(shape.state, shape.positions)

    assert len(named) == len(shape.state) - 1 + 4 + 2  # the embedding four times, positions twice
    assert (
        named["model.decoder.layers.1.encoder_attn.q_proj.bias"]
        is shape.state["decoder.layers.1.cross_attention.query.bias"]
    )
    assert named["model.encoder.layers.0.fc2.weight"] is shape.state["encoder.layers.0.feed_forward.outer.weight"]


def test_hugging_face_gives_the_same_answers(shape: Shape, sentences: list[Sentence], reference: list[list[int]]):
    pytest.importorskip("transformers", reason="pip install --group bench")
    peer = HuggingFace(build_model(shape), HuggingFaceSetting(threads=1, max_batch_size=4), OPTIONS)

    found = translated(peer, sentences)

    assert np.mean([one == other for one, other in zip(found, reference, strict=True)]) >= 0.9
    assert all(EOS_ID not in tokens for tokens in found)


def test_a_setting_says_what_it_is():
    peer = PeerSetting(compute_type="int8", inter_threads=2, max_batch_size=16)

    assert str(EngineSetting(engines=2)) == "2 x 1 threads, 128 rows"
    assert str(peer) == "2 x 1 threads, int8, 16 examples"
    assert str(replace(peer, max_delay_ms=5.0)) == "2 x 1 threads, int8, 16 examples, 5 ms"
