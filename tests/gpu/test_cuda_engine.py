"""The engine on a GPU: the CPU's translations, nothing on the host but what is said to be, no matter who is beside."""

import gc
import json
from pathlib import Path

import pytest

from model.bundle import Bundle
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.cuda.memory import CudaDevice
from service.engine.cuda.runner import GRAPHS, CudaRunner, graph_paths
from service.engine.cuda.session import free_memory, open_on_cuda
from service.engine.loop import EngineLoop
from service.engine.runner import Runner
from service.engine.wire import GPU_BUDGETS, EngineSpec, Job, JobResult, SchedulerConfig, SearchParams
from tests.fakes.own_text import own_sentences

SENTENCES = 300
NEAR_TIE = 0.02  # half precision: how far the better of two different translations may be ahead
SAME = 0.97  # of the sentences, fp16 against float32


@pytest.fixture(scope="module")
def jobs(both: Bundle) -> list[Job]:
    tokenizer = Tokenizer.load(both.tokenizer_path)
    params = SearchParams(beam_size=4, max_target_tokens=100)
    lines = own_sentences(SENTENCES, seed=11)
    return [Job(id=n, source_ids=tuple(tokenizer.encode(line)), params=params) for n, line in enumerate(lines)]


@pytest.fixture(scope="module")
def runner(both: Bundle) -> CudaRunner:
    return CudaRunner.open(EngineSpec(bundle_dir=both.directory, device="cuda"))


def finish(runner: Runner, jobs: list[Job], config: SchedulerConfig = GPU_BUDGETS) -> dict[int, JobResult]:
    loop, results = EngineLoop(runner, config), dict[int, JobResult]()
    for job in jobs:
        loop.submit(job)
    while not loop.is_idle:
        for outcome in loop.step():
            assert isinstance(outcome, JobResult), outcome
            results[outcome.job_id] = outcome
    return results


def best(results: dict[int, JobResult]) -> dict[int, tuple[int, ...]]:
    return {number: result.hypotheses[0].token_ids for number, result in results.items()}


def test_a_gpu_gives_the_cpus_translations_and_differs_in_near_ties_only(both, runner, jobs):
    expected = finish(CpuRunner(both, precision="fp32"), jobs, SchedulerConfig())

    found = finish(runner, jobs)

    same = [number for number in expected if best(found)[number] == best(expected)[number]]
    differences = [abs(found[n].hypotheses[0].score - expected[n].hypotheses[0].score) for n in expected]
    assert len(same) >= SAME * SENTENCES
    assert max(differences) < NEAR_TIE


def test_a_sentence_gets_the_same_tokens_alone_and_in_company(runner, jobs):
    alone = {job.id: best(finish(runner, [job]))[job.id] for job in jobs[:60]}

    in_company = best(finish(runner, jobs))

    assert sum(in_company[number] == tokens for number, tokens in alone.items()) >= SAME * len(alone)


def test_recorded_steps_give_the_same_translations(both, runner, jobs):
    recorded = CudaRunner.open(EngineSpec(bundle_dir=both.directory, device="cuda", cuda_graphs=True))

    assert best(finish(recorded, jobs)) == best(finish(runner, jobs))


def test_no_node_is_the_cpus_and_nothing_is_copied_to_or_from_the_host_by_a_graph(both, jobs, tmp_path):
    device = CudaDevice()
    sessions = {
        name: open_on_cuda(path, device.stream, profile=tmp_path / name) for name, path in graph_paths(both).items()
    }
    profiled = CudaRunner(both, sessions, device)

    finish(profiled, jobs[:50])

    for name in GRAPHS:
        nodes = _nodes(Path(sessions[name].end_profiling()))
        assert nodes, name
        assert {node["provider"] for node in nodes} == {"CUDAExecutionProvider"}
        assert not [node for node in nodes if node["op_name"].startswith("Memcpy")]


def _nodes(profile: Path) -> list[dict[str, str]]:
    events = json.loads(profile.read_text(encoding="utf-8"))
    return [event["args"] for event in events if event.get("cat") == "Node" and "provider" in event.get("args", {})]


def test_budgets_follow_the_memory_that_is_free(runner):
    wanted = SchedulerConfig(max_rows=1 << 30, max_source_tokens=1 << 30)

    found = runner.budgets(wanted)

    assert 1 < found.max_rows < wanted.max_rows
    assert free_memory() > 0


def test_the_same_load_again_takes_no_more_memory(both, jobs):
    fresh = CudaRunner.open(EngineSpec(bundle_dir=both.directory, device="cuda"))
    for _ in range(2):  # the second still meets shapes that are new to ONNX Runtime's arena
        finish(fresh, jobs)
    gc.collect()
    before = free_memory()

    for _ in range(3):
        finish(fresh, jobs)
    gc.collect()

    assert free_memory() >= before
