"""A step with a part of the vocabulary against the step with all of it, and against itself in other company."""

from pathlib import Path

import numpy as np
import pytest

from model.bundle import Bundle
from model.config import EOS_ID, UNK_ID
from model.shortlist import Shortlist
from model.transformer import Transformer
from service.engine.cpu import session
from service.engine.cpu.runner import CpuRunner
from service.engine.job import Job, SearchParams
from service.engine.loop import EngineLoop
from service.engine.scheduler import SchedulerConfig
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.int8_products import needs_int8_products
from tests.fakes.steered_jobs import steered
from tests.fakes.tiny_model import VOCABULARY, random_sentences, tiny_config, tiny_model, write_tiny_bundle

ALWAYS = np.array([UNK_ID, EOS_ID, 10, 11, 12, 13, 14, 15, 16, 17])
PER_TOKEN = 4
PRECISIONS = ["fp32", pytest.param("int8", marks=needs_int8_products)]


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


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_list_of_all_tokens_gives_what_the_whole_vocabulary_gives(model, precision, tmp_path):
    everything = Shortlist.from_links(VOCABULARY, np.arange(VOCABULARY), np.zeros(0, np.int64), np.zeros(0, np.int64))
    runner = CpuRunner(write_tiny_bundle(model, tmp_path / "tiny", (precision,), everything), precision=precision)
    jobs = jobs_for(model, 20, seed=1, num_hypotheses=4)
    with_list = run(EngineLoop(runner), jobs)
    without = run(EngineLoop(runner), [job._replace(params=job.params._replace(use_shortlist=False)) for job in jobs])

    for number in without:
        ours, theirs = hypotheses(with_list[number]), hypotheses(without[number])
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        np.testing.assert_allclose([one.score for one in ours], [one.score for one in theirs], atol=1e-5)


@pytest.mark.usefixtures("each_engine")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_sentence_keeps_to_its_own_list_and_does_not_notice_those_of_others(
    model, bundle, shortlist, precision, beam_size
):
    runner = CpuRunner(bundle, precision=precision)
    jobs = jobs_for(model, 40, seed=2, beam_size=beam_size)
    together = run(EngineLoop(runner, SchedulerConfig(max_rows=48)), jobs, np.random.default_rng(4))

    for job in jobs:
        (best,) = hypotheses(together[job.id])
        assert set(best.token_ids) <= set(shortlist.candidates(job.source_ids).tolist())
        (alone,) = hypotheses(run(EngineLoop(runner), [job])[job.id])
        assert best.token_ids == alone.token_ids
        assert best.score == pytest.approx(alone.score, abs=1e-5)  # a softmax sums the union in its own order


@pytest.mark.parametrize("precision", PRECISIONS)
def test_options_keep_to_the_list_too_and_concern_their_own_sentence_alone(model, bundle, shortlist, precision):
    runner, rng = CpuRunner(bundle, precision=precision), np.random.default_rng(9)
    jobs = [steered(job, rng, VOCABULARY) if job.id % 3 else job for job in jobs_for(model, 30, seed=8)]
    together = run(EngineLoop(runner, SchedulerConfig(max_rows=48)), jobs, np.random.default_rng(4))

    for job in jobs:
        alone = hypotheses(run(EngineLoop(runner), [job])[job.id])
        found = hypotheses(together[job.id])
        assert [one.token_ids for one in found] == [one.token_ids for one in alone]
        allowed = {*shortlist.candidates(job.source_ids).tolist(), *job.prefix_ids}
        assert all(set(one.token_ids) <= allowed for one in found)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tokens_off_the_list_never_enter_the_beam(model, tmp_path, precision):
    """Fewer tokens are allowed than the search looks at."""
    allowed = np.array([UNK_ID, EOS_ID, 10, 11, 12])
    lists = Shortlist.from_links(VOCABULARY, allowed, np.zeros(0, np.int64), np.zeros(0, np.int64))
    runner = CpuRunner(write_tiny_bundle(model, tmp_path / "tiny", (precision,), lists), precision=precision)
    jobs = jobs_for(model, 12, seed=6, beam_size=8, num_hypotheses=8)
    jobs += [job._replace(id=100 + job.id, params=job.params._replace(max_target_tokens=1)) for job in jobs]

    for result in run(EngineLoop(runner), jobs).values():
        assert hypotheses(result)
        for hypothesis in hypotheses(result):
            assert set(hypothesis.token_ids) <= set(allowed.tolist())
            assert hypothesis.score > -100.0


def test_model_without_a_list_uses_the_whole_vocabulary(model, tmp_path):
    runner = CpuRunner(write_tiny_bundle(model, tmp_path / "tiny"))
    (job,) = jobs_for(model, 1, seed=5)

    assert runner.new_state(1, use_shortlist=True).vocabulary is None
    without = job._replace(params=job.params._replace(use_shortlist=False))
    assert hypotheses(run(EngineLoop(runner), [job])[0]) == hypotheses(run(EngineLoop(runner), [without])[0])


def test_cpu_whose_products_saturate_uses_the_whole_vocabulary(monkeypatch, bundle):
    monkeypatch.setattr(session, "cpu_flags", lambda: frozenset({"avx2"}))

    assert CpuRunner(bundle, precision="int8").new_state(1, use_shortlist=True).vocabulary is None


def test_fp32_keeps_its_list_on_such_a_cpu_where_no_precision_is_named(monkeypatch, model, shortlist, tmp_path):
    only = write_tiny_bundle(model, tmp_path / "tiny", ("fp32",), shortlist)
    monkeypatch.setattr(session, "cpu_flags", lambda: frozenset({"avx2"}))

    assert CpuRunner(only).new_state(1, use_shortlist=True).vocabulary is not None


def test_list_for_another_vocabulary_is_refused(model, tmp_path: Path):
    other = Shortlist.from_links(VOCABULARY + 1, ALWAYS, np.zeros(0, np.int64), np.zeros(0, np.int64))
    bundle = write_tiny_bundle(model, tmp_path / "tiny", shortlist=other)

    with pytest.raises(ValueError, match="vocabulary"):
        CpuRunner(bundle)
