"""A step with a part of the vocabulary against the step with all of it, and against itself in other company."""

from dataclasses import replace

import numpy as np
import pytest

from model.bundle import Bundle, BundleError
from model.config import EOS_ID, UNK_ID
from model.shortlist import Shortlist
from model.transformer import Transformer
from service.engine.cpu.native.runner import NativeRunner
from service.engine.loop import EngineLoop
from service.engine.wire import Job, SchedulerConfig, SearchParams
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.tiny_model import VOCABULARY, random_sentences, tiny_config, tiny_model, write_tiny_bundle

ALWAYS = np.array([UNK_ID, EOS_ID, 10, 11, 12, 13, 14, 15, 16, 17])
PER_TOKEN = 4
PRECISIONS = ["fp32", "int8"]

pytestmark = pytest.mark.usefixtures("native_library")


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny_model(tiny_config(vocab_size=VOCABULARY))


@pytest.fixture(scope="module")
def shortlist() -> Shortlist:
    rng = np.random.default_rng(3)
    sources = np.repeat(np.arange(VOCABULARY), PER_TOKEN)
    return Shortlist.from_links(VOCABULARY, ALWAYS, sources, rng.integers(EOS_ID, VOCABULARY, sources.size))


@pytest.fixture(scope="module")
def bundle(model: Transformer, shortlist: Shortlist, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    directory = tmp_path_factory.mktemp("bundles") / "tiny"
    return write_tiny_bundle(model, directory, ("fp32", "int8"), shortlist)


def jobs_for(model: Transformer, count: int, seed: int, **params: object) -> list[Job]:
    rng = np.random.default_rng(seed)
    sources = random_sentences(model.config, rng.integers(2, 30, count).tolist(), seed)
    search = SearchParams(max_target_tokens=25, use_shortlist=True, **params)  # type: ignore[arg-type]
    return [Job(id=number, source_ids=tuple(source), params=search) for number, source in enumerate(sources)]


@pytest.mark.parametrize("suppressed", [(), tuple(range(10, 40))])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_list_of_all_tokens_gives_what_the_whole_vocabulary_gives(precision, suppressed, tmp_path):
    """Also where tokens that are never written keep their share of the probabilities."""
    config = replace(tiny_config(vocab_size=VOCABULARY), suppressed_ids=suppressed, suppressed_keep_mass=True)
    model = tiny_model(config)
    everything = Shortlist.from_links(VOCABULARY, np.arange(VOCABULARY), np.zeros(0, np.int64), np.zeros(0, np.int64))
    runner = NativeRunner(write_tiny_bundle(model, tmp_path / "tiny", (precision,), everything), precision=precision)
    jobs = jobs_for(model, 20, seed=1, num_hypotheses=4)
    with_list = run(EngineLoop(runner), jobs)
    without = run(EngineLoop(runner), [job._replace(params=job.params._replace(use_shortlist=False)) for job in jobs])

    for number in without:
        ours, theirs = hypotheses(with_list[number]), hypotheses(without[number])
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        np.testing.assert_allclose([one.score for one in ours], [one.score for one in theirs], atol=1e-5)


def test_a_list_with_tokens_that_the_target_language_has_not_is_refused(tmp_path):
    config = replace(tiny_config(vocab_size=VOCABULARY + 10), target_vocab_size=VOCABULARY, shared_embeddings=False)
    source_only = np.array([UNK_ID, EOS_ID, VOCABULARY + 5])
    lists = Shortlist.from_links(VOCABULARY + 10, source_only, np.zeros(0, np.int64), np.zeros(0, np.int64))
    bundle = write_tiny_bundle(tiny_model(config), tmp_path / "tiny", ("fp32",), lists)

    with pytest.raises(BundleError, match=f"target token {VOCABULARY + 5}, the model has {VOCABULARY}"):
        NativeRunner(bundle, precision="fp32")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_sentence_keeps_to_its_own_list_and_does_not_notice_those_of_others(
    model, bundle, shortlist, precision, beam_size
):
    runner = NativeRunner(bundle, precision=precision)
    jobs = jobs_for(model, 40, seed=2, beam_size=beam_size)
    together = run(EngineLoop(runner, SchedulerConfig(max_rows=48)), jobs, np.random.default_rng(4))

    for job in jobs:
        (best,) = hypotheses(together[job.id])
        assert set(best.token_ids) <= set(shortlist.candidates(job.source_ids).tolist())
        (alone,) = hypotheses(run(EngineLoop(runner), [job])[job.id])
        assert best == alone


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tokens_off_the_list_never_enter_the_beam(model, tmp_path, precision):
    """Fewer tokens are allowed than the search looks at."""
    allowed = np.array([UNK_ID, EOS_ID, 10, 11, 12])
    lists = Shortlist.from_links(VOCABULARY, allowed, np.zeros(0, np.int64), np.zeros(0, np.int64))
    runner = NativeRunner(write_tiny_bundle(model, tmp_path / "tiny", (precision,), lists), precision=precision)
    jobs = jobs_for(model, 12, seed=6, beam_size=8, num_hypotheses=8)
    jobs += [job._replace(id=100 + job.id, params=job.params._replace(max_target_tokens=1)) for job in jobs]

    for result in run(EngineLoop(runner), jobs).values():
        assert hypotheses(result)
        for hypothesis in hypotheses(result):
            assert set(hypothesis.token_ids) <= set(allowed.tolist())
            assert hypothesis.score > -100.0
