"""What a GPU will run, run here: the same tokens as the CPU engine, whoever joins, leaves or is squeezed."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from export.linear import FloatProducts
from export.onnx_export import ExportOptions, Samples, export_bundle, write_cuda_graphs
from export.source import ExportSource
from model.bundle import Bundle, default_bundle_dir
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from service.engine.cpu.runner import MASKED, CpuRunner, open_session
from service.engine.cuda.memory import Block
from service.engine.cuda.runner import GRAPHS, CudaRunner
from service.engine.faults import DeviceOutOfMemory
from service.engine.loop import EngineLoop
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, Outcome, SchedulerConfig, SearchParams
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.host_device import HostDevice, HostRegion
from tests.fakes.own_text import own_sentences
from tests.fakes.steered_jobs import steered
from tests.fakes.tiny_model import VOCABULARY, random_sentences, state_of, tiny_config, tiny_model, write_tiny_bundle
from tests.parity.model_pair import num_sentences


def device_runner(bundle: Bundle, graphs: Path) -> CudaRunner:
    """A runner of float16 graphs in a directory, on the CPU."""
    sessions = {name: open_session(graphs / f"{name}.onnx", 1) for name in GRAPHS}
    return CudaRunner(bundle, sessions, HostDevice())


def float32_twin(bundle: Bundle, model: Transformer, directory: Path, device: HostDevice | None = None) -> CudaRunner:
    """The same with float32 in all places."""
    write_cuda_graphs(model.config, state_of(model), FloatProducts(dtype=TensorProto.FLOAT), directory)
    sessions = {name: open_session(directory / f"{name}.onnx", 1) for name in GRAPHS}
    return CudaRunner(bundle, sessions, device or HostDevice(), masked=MASKED)


SEEDS = (1, 2)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_tiny_bundle(tiny_model(tiny_config(vocab_size=VOCABULARY)), tmp_path_factory.mktemp("cpu") / "tiny")


@pytest.fixture(scope="module")
def twin(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> CudaRunner:
    model = tiny_model(tiny_config(vocab_size=VOCABULARY))
    return float32_twin(bundle, model, tmp_path_factory.mktemp("twin") / "fp32")


def jobs(num_jobs: int, seed: int = 0) -> list[Job]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 30, num_jobs).tolist()
    sources = random_sentences(tiny_config(vocab_size=VOCABULARY), lengths, seed)
    plain = [
        Job(
            id=number,
            source_ids=tuple(source),
            params=SearchParams(
                beam_size=int(rng.choice([1, 2, 4, 5])), max_target_tokens=int(rng.integers(1, 40)), num_hypotheses=1
            ),
        )
        for number, source in enumerate(sources)
    ]
    return [steered(job, rng, VOCABULARY) if job.id % 3 == 0 else job for job in plain]


def tokens(outcomes: Mapping[int, Outcome]) -> dict[int, tuple[int, ...]]:
    return {number: hypotheses(outcome)[0].token_ids for number, outcome in outcomes.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_and_values_that_move_on_a_device_give_the_cpu_engines_tokens(bundle, twin, seed):
    some = jobs(60, seed)
    expected = run(EngineLoop(CpuRunner(bundle, precision="fp32")), some)

    found = run(EngineLoop(twin, SchedulerConfig(max_rows=48)), some, np.random.default_rng(seed))

    assert tokens(found) == tokens(expected)
    scores = [hypotheses(expected[n])[0].score - hypotheses(found[n])[0].score for n in expected]
    assert max(map(abs, scores)) < 1e-4  # float32: sums in another order, as columns lie elsewhere


class _Region(HostRegion):
    """Memory that nobody asked for is NaN, as on a GPU it may be, or is not there at all."""

    def __init__(self, num_arrays: int, multiple: int) -> None:
        super().__init__(num_arrays, multiple)
        self._arrays[:] = 0xFF

    def grow(self, size: int) -> None:
        begin = self.size
        super().grow(size)
        self._arrays[:, begin : self.size] = 0

    def release(self) -> None:
        self.size = 0
        self._arrays[:] = 0xFF


class _Dirty(HostDevice):
    def reserve(self, num_arrays: int, multiple: int) -> HostRegion:
        return _Region(num_arrays, multiple)

    def shared(self, size: int) -> Block:
        block = super().shared(size)
        block.host[:] = 0xFF
        return block


def test_no_step_reads_memory_that_was_not_asked_for(bundle, twin, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fakes.host_device._STRIDE", 1 << 22)
    model = tiny_model(tiny_config(vocab_size=VOCABULARY))
    dirty = float32_twin(bundle, model, tmp_path / "fp32", _Dirty())
    for seed, rows in ((3, 16), (4, 256)):  # the second finds memory that the first has given back
        some = jobs(40, seed)
        expected = run(EngineLoop(twin, SchedulerConfig(max_rows=rows)), some)

        found = run(EngineLoop(dirty, SchedulerConfig(max_rows=rows)), some)

        assert tokens(found) == tokens(expected)


def test_recorded_batches_give_each_sentence_the_keys_and_values_that_it_has_alone(bundle, tmp_path):
    """The batch is filled up, and the next one has come before its keys and values are used."""
    runner = float32_twin(bundle, tiny_model(tiny_config(vocab_size=VOCABULARY)), tmp_path / "graphs")
    sources = random_sentences(tiny_config(vocab_size=VOCABULARY), [3, 17, 30, 9, 16, 1], 1)
    alone = [runner.encode([source]) for source in sources]
    runner._encoder.record()

    first, second = runner.encode(sources[:5]), runner.encode(sources[5:])

    assert (first.memory.shape()[1], first.num_columns) == (8, 32)
    assert (second.memory.shape()[1], second.num_columns) == (4, 16)
    places = [(first, index) for index in range(5)] + [(second, 0)]
    for source, (encoded, index), expected in zip(sources, places, alone, strict=True):
        found = encoded.memory.numpy()[:, index, :, : len(source)]
        assert encoded.lengths[index] == len(source)
        np.testing.assert_allclose(found, expected.memory.numpy()[:, 0, :, : len(source)], atol=1e-5)


def test_too_little_memory_fails_that_batch_and_halves_the_next_ones(twin, monkeypatch):
    decode_step = twin.decode_step

    def decode_few(tokens, *args, **options):
        if len(tokens) > 10:
            raise DeviceOutOfMemory("Failed to allocate memory for requested buffer of size 1")
        return decode_step(tokens, *args, **options)

    monkeypatch.setattr(twin, "decode_step", decode_few)
    params = SearchParams(beam_size=4, max_target_tokens=4)
    some = [Job(id=n, source_ids=(5, 6, 2), params=params) for n in range(100)]
    loop = EngineLoop(twin, SchedulerConfig(max_rows=128))

    outcomes = run(loop, some)

    failed = [outcome for outcome in outcomes.values() if isinstance(outcome, JobFailure)]
    assert {outcome.kind for outcome in failed} == {FailureKind.OUT_OF_MEMORY}
    assert len(failed) == 32 + 16  # of 128 and of 64 rows; 32 rows fit
    assert loop._scheduler.config.max_rows == 32
    assert all(isinstance(outcomes[n], JobResult) for n in range(48, 100))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    directory = tmp_path_factory.mktemp("trained") / "gpu"
    source = ExportSource.load(default_bundle_dir())
    options = ExportOptions(precisions=("fp32", "fp16"), keep_weights=False)
    return export_bundle(source, directory, options, Samples())


@pytest.mark.slow
def test_half_precision_gives_the_trained_models_tokens(trained):
    tokenizer = Tokenizer.load(trained.tokenizer_path)
    params = SearchParams(beam_size=4, max_target_tokens=60)
    some = [
        Job(id=n, source_ids=tuple(tokenizer.encode(line)), params=params)
        for n, line in enumerate(own_sentences(40, seed=3))
    ]

    expected = tokens(run(EngineLoop(CpuRunner(trained, precision="fp32")), some))
    found = tokens(run(EngineLoop(device_runner(trained, trained.path("fp16"))), some))

    assert sum(found[n] == expected[n] for n in expected) >= len(expected) - 1


@pytest.mark.slow
def test_slots_give_the_trained_models_tokens_whatever_is_asked_for(trained, tmp_path):
    """Sentences in float32 that join a few at a time, with any beam and options, and some of them alone."""
    source, random = ExportSource.load(default_bundle_dir()), np.random.default_rng(1)
    write_cuda_graphs(source.config, source.state, FloatProducts(dtype=TensorProto.FLOAT), tmp_path / "fp32")
    sessions = {name: open_session(tmp_path / f"fp32/{name}.onnx", 1) for name in GRAPHS}
    runner = CudaRunner(trained, sessions, HostDevice(), masked=MASKED)
    tokenizer = Tokenizer.load(trained.tokenizer_path)
    some = []
    for number, line in enumerate(own_sentences(num_sentences(30), seed=7)):
        params = SearchParams(beam_size=int(random.choice([1, 4, 5])), max_target_tokens=60)
        plain = Job(id=number, source_ids=tuple(tokenizer.encode(line)), params=params)
        some.append(steered(plain, random, 8_000) if number % 3 == 0 else plain)

    expected = tokens(run(EngineLoop(CpuRunner(trained, precision="fp32")), some))
    found = tokens(run(EngineLoop(runner, SchedulerConfig(max_rows=256)), some, random))
    alone = {job.id: tokens(run(EngineLoop(runner), [job]))[job.id] for job in some[::10]}

    assert found == expected
    assert alone == {number: expected[number] for number in alone}
