"""How fast the engine is on a device, at a number of rows: tokens a second, and where a step's time goes."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from model.bundle import Bundle
from service.engine.cpu.session import open_session
from service.engine.cuda.runner import CudaRunner, graph_paths
from service.engine.job import Job, JobResult, SearchParams
from service.engine.loop import EngineLoop
from service.engine.scheduler import GPU_BUDGETS

Sources = Sequence[tuple[int, ...]]
WAVES = 3  # of sentences that fill the rows, so that most steps are full


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of one number of rows."""

    rows: int  # that may run at once
    mean_rows: float  # that did
    recorded: bool  # steps are replayed as CUDA graphs
    sentences_per_s: float
    tokens_per_s: float  # of the best hypotheses
    step_ms: float  # of which:
    graph_ms: float
    search_ms: float
    encoder_share: float  # of all the time

    def record(self) -> dict[str, float]:
        """As JSON."""
        return {**{name: round(value, 4) for name, value in asdict(self).items()}, "recorded": self.recorded}


def open_runner(bundle: Bundle, device: str, *, recorded: bool = False, profile: Path | None = None) -> CudaRunner:
    """The GPU's graphs, on a GPU or, to rehearse, on the CPU."""
    paths = graph_paths(bundle)
    if device == "cpu":
        return CudaRunner(bundle, {name: open_session(path, 1) for name, path in paths.items()}, "cpu")
    from service.engine.cuda.session import open_on_cuda

    sessions = {
        name: open_on_cuda(path, cuda_graphs=recorded and name == "decoder_step", profile=profile and profile / name)
        for name, path in paths.items()
    }
    return CudaRunner(bundle, sessions, "cuda", records=recorded)


def measure(runner: CudaRunner, sources: Sources, rows: int, params: SearchParams, *, recorded: bool) -> Speed:
    """The second of two runs over the same sentences, longest first."""
    loop = EngineLoop(runner, replace(GPU_BUDGETS, max_rows=rows))
    wanted = max(WAVES * rows // params.beam_size, 8)
    batch = sorted((sources[number % len(sources)] for number in range(wanted)), key=len, reverse=True)
    translate(loop, batch, params)
    loop.take_stats()
    began = time.perf_counter()
    num_tokens = translate(loop, batch, params)
    seconds, stats = time.perf_counter() - began, loop.take_stats()
    return Speed(
        rows=rows,
        mean_rows=stats.rows / stats.steps,
        recorded=recorded,
        sentences_per_s=len(batch) / seconds,
        tokens_per_s=num_tokens / seconds,
        step_ms=1e3 * (stats.busy_s - sum(stats.encode_s)) / stats.steps,
        graph_ms=1e3 * sum(stats.step_decode_s) / stats.steps,
        search_ms=1e3 * sum(stats.step_beam_s) / stats.steps,
        encoder_share=sum(stats.encode_s) / stats.busy_s,
    )


def translate(loop: EngineLoop, sources: Sources, params: SearchParams) -> int:
    """Tokens of the best hypotheses, end-of-sentence counted.

    Raises:
        TypeError: a sentence failed.
    """
    for number, source in enumerate(sources):
        loop.submit(Job(id=number, source_ids=source, params=params))
    num_tokens = 0
    while not loop.is_idle:
        for outcome in loop.step():
            if not isinstance(outcome, JobResult):
                raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
            num_tokens += len(outcome.hypotheses[0].token_ids) + 1
    return num_tokens
