"""What the native engine promises beside the parity that it shares with the engine on ONNX Runtime."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any
from unittest import mock

import numpy as np
import pytest

from model.bundle import Bundle, BundleError
from model.config import Architecture
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from service.engine import loop
from service.engine.choice import library_problem, native_problem
from service.engine.cpu.native import library, pack
from service.engine.cpu.native.library import LibraryError, instruction_set
from service.engine.cpu.native.runner import NativeRunner, open_model
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import (
    EngineSpec,
    FailureKind,
    FinishReason,
    Job,
    JobFailure,
    JobResult,
    SchedulerConfig,
    SearchParams,
)
from service.engine.worker import create_runner
from tests.fakes.engine_runs import hypotheses, run, translate
from tests.fakes.tiny_model import VOCABULARY, random_sentences, tiny_config, tiny_model, write_tiny_bundle
from trials.native.border import call_at_random

FAULTY_TOKEN = 7

pytestmark = pytest.mark.usefixtures("native_library")


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = replace(tiny_config(vocab_size=VOCABULARY), shared_embeddings=False, tied_projection=False)
    return tiny_model(config)


@pytest.fixture(scope="module")
def bundle(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(model, tmp_path_factory.mktemp("bundles") / "tiny", ("fp32", "int8"))


def packed(bundle: Bundle, precision: str = "int8", most_sum: int = 258) -> bytes:
    out = BytesIO()
    pack.write_packed(bundle, precision, out, most_sum)
    return out.getvalue()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_steps_ahead_give_what_single_steps_give(bundle, model, beam_size, monkeypatch):
    sources = random_sentences(model.config, [3, 9, 17, 2, 30])
    params = SearchParams(beam_size=beam_size, max_target_tokens=50)
    found, num_calls = [], []
    for most_s in (0.0, 1.0):  # no step ahead, or hundreds
        monkeypatch.setattr(loop, "_AHEAD_S", most_s)
        runner = NativeRunner(bundle, precision="int8")
        counted = mock.patch.object(runner, "decode_ahead", wraps=runner.decode_ahead)
        with counted as calls:
            found.append(translate(runner, sources, params))
        num_calls.append(calls.call_count)

    assert found[0] == found[1]
    assert num_calls[1] < num_calls[0]


def test_a_translation_that_only_repeats_itself_ends_where_it_does_in_onnx_runtime(trained_bundles):
    bundle = Bundle.load(trained_bundles["fp32"])
    tokenizer = Tokenizer.load(bundle.tokenizer_path)
    sources = [tokenizer.encode(4 * f"{letter.upper()}{18 * letter}!") for letter in "aeiou"]
    params = SearchParams(beam_size=4, max_target_tokens=256, stop_repetition=True)

    ours = translate(NativeRunner(bundle, precision="fp32"), sources, params)
    theirs = translate(CpuRunner(bundle, precision="fp32"), sources, params)

    said = [[(best.token_ids, best.finish_reason) for (best,) in found] for found in (ours, theirs)]
    assert said[0] == said[1]
    assert FinishReason.REPETITION in {reason for _, reason in said[0]}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("instructions", ["avx2", "avxvnni", "avx512vnni"])
def test_every_instruction_set_of_this_cpu_writes_what_onnx_runtime_writes(bundle, model, instructions, precision):
    """In floats token for token; int8 rounds otherwise.  The kernels themselves: `make check-native`."""
    if not instruction_set(instructions):
        pytest.skip(f"this CPU has no {instructions}")
    jobs = [
        Job(id=n, source_ids=tuple(source), params=SearchParams(length_penalty=float(n % 2), max_target_tokens=30))
        for n, source in enumerate(random_sentences(model.config, range(2, 22)))
    ]
    native = NativeRunner(bundle, precision=precision, instruction_set=instructions)

    outcomes = [run(EngineLoop(runner), jobs) for runner in (native, CpuRunner(bundle, precision=precision))]

    ours, theirs = ([one for _, one in sorted(each.items()) if isinstance(one, JobResult)] for each in outcomes)
    scores = [np.array([one.hypotheses[0].score for one in each[1::2]]) for each in (ours, theirs)]  # by length
    if precision == "fp32":
        found, wanted = ([(one.hypotheses[0].token_ids, one.num_steps) for one in each] for each in (ours, theirs))
        assert found == wanted
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    else:
        assert np.abs(scores[0] - scores[1]).mean() < 0.1


def poisoned(bad: float, load: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def weights(*args: object) -> dict[str, Any]:
        found = load(*args)
        name = "embedding.row_scales" if "embedding.row_scales" in found else "embedding.weight"
        found[name] = np.array(found[name])
        found[name][FAULTY_TOKEN] = bad
        return found

    return weights


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_sentence_that_meets_a_poisoned_weight_fails_alone(bundle, model, precision, bad, monkeypatch):
    rng = np.random.default_rng(3)
    sources = random_sentences(model.config, rng.integers(2, 30, 40).tolist())
    sound = [source for source in sources if FAULTY_TOKEN not in source]
    params = SearchParams(beam_size=3, max_target_tokens=12)
    wanted = translate(NativeRunner(bundle, precision=precision), sound, params)
    monkeypatch.setattr(pack, "_weights", poisoned(bad, pack._weights))
    jobs = [Job(id=number, source_ids=tuple(source), params=params) for number, source in enumerate(sound)]
    bad_jobs = [job._replace(id=100 + job.id, source_ids=(FAULTY_TOKEN, *job.source_ids)) for job in jobs[::3]]

    runner = NativeRunner(bundle, precision=precision)
    outcomes = run(EngineLoop(runner, SchedulerConfig(max_rows=24)), [*bad_jobs, *jobs], rng)

    assert [hypotheses(outcomes[job.id]) for job in jobs] == wanted
    for job in bad_jobs:
        outcome = outcomes[job.id]
        assert isinstance(outcome, JobFailure)
        assert outcome.kind is FailureKind.NON_FINITE


def test_wrong_arguments_raise_and_harm_nothing(bundle):
    num_refused, num_done = call_at_random(NativeRunner(bundle, precision="int8"), number=2_000, seed=1)

    assert min(num_refused, num_done) > 200


def test_graphs_of_another_model_are_refused(bundle):
    config = replace(bundle.manifest.config, d_ff=48)

    with pytest.raises(BundleError, match="graphs are not of the manifest's model"):
        NativeRunner(replace(bundle, manifest=replace(bundle.manifest, config=config)), precision="fp32")


def test_an_instruction_set_that_the_cpu_lacks_is_refused(bundle):
    assert instruction_set("no such set") == ""

    with pytest.raises(LibraryError, match="this CPU has no no such set instructions"):
        NativeRunner(bundle, precision="fp32", instruction_set="no such set")


def test_a_model_that_it_does_not_know_is_refused_by_name(bundle):
    config = replace(bundle.manifest.config, architecture=Architecture.LSTM)

    with pytest.raises(BundleError, match="the native engine does not know architecture lstm"):
        NativeRunner(replace(bundle, manifest=replace(bundle.manifest, config=config)), precision="fp32")


@pytest.fixture
def can_serve() -> None:
    """Skip where the library has no kernels for this CPU."""
    if problem := library_problem():
        pytest.skip(problem)


@pytest.mark.usefixtures("can_serve")
def test_it_serves_where_it_can_unless_another_is_asked_for(bundle):
    spec = EngineSpec(bundle_dir=bundle.directory, precision="int8", runtime="auto")

    assert isinstance(create_runner(spec), NativeRunner)
    assert isinstance(create_runner(replace(spec, runtime="onnxruntime")), CpuRunner)
    assert isinstance(create_runner(replace(spec, num_threads=2)), CpuRunner)
    with pytest.raises(BundleError, match=r"engine\.runtime is native: .*: it computes with one thread"):
        create_runner(replace(spec, num_threads=2, runtime="native"))


def test_without_a_library_onnx_runtime_serves_and_the_reason_is_said(bundle, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "library_path", lambda: tmp_path / "none.so")
    library.load.cache_clear()
    try:
        assert "it is not built: install g++ and run `make native`" in native_problem(bundle, "int8")
        assert isinstance(
            create_runner(EngineSpec(bundle_dir=bundle.directory, precision="int8", runtime="auto")), CpuRunner
        )
    finally:
        library.load.cache_clear()


def test_a_packed_model_of_another_instruction_set_is_refused(bundle, tmp_path):
    file = tmp_path / "packed"
    file.write_bytes(packed(bundle, most_sum=1 << 20))

    with pytest.raises(BundleError), file.open("rb") as opened:
        open_model(opened)
