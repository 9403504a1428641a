"""What a GPU will run, run here: the same tokens as the CPU engine, whoever joins, leaves or is squeezed."""

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from onnx import TensorProto

from export.linear import FloatProducts
from export.onnx_export import write_cuda_graphs
from model.bundle import Bundle
from model.transformer import Transformer
from service.engine.beams import Candidates
from service.engine.cpu.runner import MASKED, CpuRunner, open_session
from service.engine.cuda.kv_cache import CudaEncoded
from service.engine.cuda.memory import Block, Bytes
from service.engine.cuda.runner import GRAPHS, CudaRunner, Launched
from service.engine.device_errors import DeviceOutOfMemory
from service.engine.loop import EngineLoop
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, Outcome, SchedulerConfig, SearchParams
from tests.fakes.clock import Clock
from tests.fakes.engine_runs import hypotheses, run
from tests.fakes.host_device import HostDevice, HostRegion
from tests.fakes.steered_jobs import steered
from tests.fakes.tiny_model import VOCABULARY, random_sentences, state_of, tiny_config, tiny_model, write_tiny_bundle


def float32_twin(bundle: Bundle, model: Transformer, directory: Path, device: HostDevice | None = None) -> CudaRunner:
    """The same with float32 in all places."""
    write_cuda_graphs(model.config, state_of(model), FloatProducts(dtype=TensorProto.FLOAT), directory)
    sessions = {name: open_session(directory / f"{name}.onnx", 1) for name in GRAPHS}
    return CudaRunner(bundle, sessions, device or HostDevice(), masked=MASKED)


SEEDS = (1, 2)
FAULTY_TOKEN = 7


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


class _Sent(NamedTuple):
    """What the device reads while it computes."""

    memory: Bytes  # the host's
    as_sent: Bytes

    def finish(self) -> None:
        assert np.array_equal(self.memory, self.as_sent), "memory was written to that the device may still read"


class _Fetched(NamedTuple):
    block: Block
    size: int

    def finish(self) -> None:
        self.block.host[: self.size] = _bytes_at(self.block.device.address, self.size)


class _LateDevice(HostDevice):
    """What comes back comes when an event is waited for, and what is given must not change before that."""

    def __init__(self) -> None:
        self.under_way, self.num_done = list[_Sent | _Fetched](), 0
        self._shared = list[_Sent]()  # blocks, as they were when the device last read them

    def block(self, size: int) -> Block:
        host = np.full(size, 0xFF, np.uint8)
        return Block(super().block(size).device, host, host.ctypes.data)

    def shared(self, size: int) -> Block:
        block = super().block(size)
        self._shared.append(_Sent(block.host, block.host.copy()))
        return block

    def send(self, block: Block, size: int) -> None:
        _bytes_at(block.device.address, size)[:] = block.host[:size]
        self.under_way.append(_Sent(block.host[:size], block.host[:size].copy()))

    def fetch(self, block: Block, size: int) -> None:
        block.host[:size] = 0xFF
        self.under_way.append(_Fetched(block, size))

    def event(self) -> "_LateEvent":
        return _LateEvent(self)

    def read_shared(self) -> None:
        for place, (memory, as_sent) in enumerate(self._shared):
            if not np.array_equal(memory, as_sent):
                self._shared[place] = _Sent(memory, memory.copy())
                self.under_way.append(self._shared[place])

    def finish(self, number: int) -> None:
        """Do what was asked for, up to the thing with this number."""
        while self.num_done < number:
            self.num_done += 1
            self.under_way.pop(0).finish()


class _LateEvent:
    def __init__(self, device: _LateDevice) -> None:
        self._device, self._number = device, 0

    def record(self) -> None:
        self._device.read_shared()
        self._number = self._device.num_done + len(self._device.under_way)

    def wait(self) -> None:
        self._device.finish(self._number)


def _bytes_at(address: int, size: int) -> Bytes:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,))


@pytest.fixture
def small_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.loop.FULL_LANE", 3)
    monkeypatch.setattr("tests.fakes.host_device._STRIDE", 1 << 24)


@pytest.fixture(scope="module")
def late_twin(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> CudaRunner:
    model = tiny_model(tiny_config(vocab_size=VOCABULARY))
    return float32_twin(bundle, model, tmp_path_factory.mktemp("late") / "fp32", _LateDevice())


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_that_take_turns_give_the_cpu_engines_tokens(bundle, late_twin, small_lanes, seed):
    """While a lane's step is under way, sentences join the other one, and end there."""
    some = jobs(80, seed)
    expected = run(EngineLoop(CpuRunner(bundle, precision="fp32")), some)
    loop, both = EngineLoop(late_twin, SchedulerConfig(max_rows=64)), 0
    count_lanes = loop._sizes

    def sizes() -> dict[int, int]:
        nonlocal both
        both += all(count_lanes().values()) and len(loop._under_way) == 1
        return count_lanes()

    loop._sizes = sizes  # type: ignore[method-assign]

    found = run(loop, some, np.random.default_rng(seed))

    assert both > 20
    assert tokens(found) == tokens(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_job_ends_once_whatever_happens_while_a_step_is_under_way(bundle, late_twin, small_lanes, seed):
    """Cancelled, late, or without memory for the steps of its lane; the others have the CPU engine's tokens."""
    some, random = jobs(150, seed), np.random.default_rng(seed)
    expected = tokens(run(EngineLoop(CpuRunner(bundle, precision="fp32")), some))
    clock, waiting, outcomes = Clock(), list(some), list[Outcome]()
    loop = EngineLoop(late_twin, SchedulerConfig(max_rows=64), clock=clock)
    collect, num_failures = late_twin.collect, 0

    def collect_or_fail(launched: Launched) -> Candidates:
        nonlocal num_failures
        if random.random() < 0.01:
            num_failures += 1
            raise DeviceOutOfMemory("Failed to allocate memory for requested buffer of size 1")
        found: Candidates = collect(launched)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_twin, "collect", collect_or_fail)
        while waiting or not loop.is_idle:
            for job in waiting[:3]:
                is_late = random.random() < 0.2
                loop.submit(job._replace(deadline=clock.now + int(random.integers(1, 20)) if is_late else None))
            del waiting[:3]
            for number in random.integers(0, len(some), 2).tolist():
                if random.random() < 0.2:
                    loop.cancel(number)
            outcomes += loop.step()
            clock.now += 1

    kinds = Counter(one.kind if isinstance(one, JobFailure) else None for one in outcomes)
    assert sorted(one.job_id for one in outcomes) == list(range(150))
    assert {*kinds} == {None, FailureKind.CANCELLED, FailureKind.DEADLINE, FailureKind.OUT_OF_MEMORY}, kinds
    assert num_failures
    for one in outcomes:
        if isinstance(one, JobResult):
            assert one.hypotheses[0].token_ids == expected[one.job_id]
    assert [loop._under_way, loop._lanes, loop._arrived_at] == [{}, {}, {}]


def test_a_sentence_without_numbers_fails_alone_and_leaves_its_slot_clean(twin, monkeypatch):
    """What is in its keys and values must not reach the sentence that gets its place, behind whatever mask."""
    encode: Callable[[Sequence[Sequence[int]]], CudaEncoded] = twin.encode

    def faulty(sources: Sequence[Sequence[int]]) -> CudaEncoded:
        found = encode(sources)
        for index, source in enumerate(sources):
            if source[0] == FAULTY_TOKEN:
                found.memory.numpy()[:, index] = np.nan  # shares its memory
        return found

    sound = [job for job in jobs(60, 3) if job.source_ids[0] != FAULTY_TOKEN]
    bad = [job._replace(id=100 + job.id, source_ids=(FAULTY_TOKEN, *job.source_ids)) for job in sound[::4]]
    expected = tokens(run(EngineLoop(twin), sound))
    monkeypatch.setattr(twin, "encode", faulty)

    outcomes = run(EngineLoop(twin, SchedulerConfig(max_rows=16)), sorted([*bad, *sound], key=lambda job: job.id % 100))

    failures = {outcomes.pop(job.id) for job in bad}
    assert {failure.kind for failure in failures if isinstance(failure, JobFailure)} == {FailureKind.NON_FINITE}
    assert tokens(outcomes) == expected


def test_a_sentence_too_long_to_be_encoded_ahead_does_not_wait_until_all_others_have_ended(late_twin):
    loop = EngineLoop(late_twin, SchedulerConfig(max_ahead_tokens=1))
    first, second = (Job(id=n, source_ids=(5, 6, 2), params=SearchParams(max_target_tokens=40)) for n in range(2))

    loop.submit(first)
    loop.step()
    loop.submit(second)
    loop.step()

    assert loop._scheduler.num_running == 2
    run(loop)


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
