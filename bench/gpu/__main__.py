"""One group of parts of `bench_gpu.py`, in a process of its own: a CUDA error stays for as long as the process lives.

    python -m bench.gpu expected --bundle BUNDLE --out DIR     # the CPU's tokens, which `tokens` reads
    python -m bench.gpu tokens --recorded --bundle BUNDLE --out DIR
    python -m bench.gpu speed --recorded --bundle BUNDLE --out DIR
    python -m bench.gpu profile --recorded --bundle BUNDLE --out DIR

Adds what it finds to gpu.json in --out.  One that hangs prints where, and ends.
"""

import faulthandler
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.gpu.engine import (
    Sources,
    compare,
    free_gb,
    load_sources,
    memory_under_load,
    open_runner,
    parts_of_a_step,
    speed,
    stream_steps,
    translate,
)
from bench.gpu.findings import Figures, Findings
from model.bundle import Bundle
from service.engine.cpu.runner import CpuRunner
from service.engine.cuda import cudart
from service.engine.cuda.runner import CudaRunner
from service.engine.cuda.session import require_cuda
from service.engine.loop import EngineLoop
from service.engine.wire import FinishReason, Hypothesis, SchedulerConfig, SearchParams
from service.threads import available_threads

OTHER_BEAMS, OTHER_SENTENCES = (1, 5), 100  # whose tokens are compared as well, and over how many sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What all groups are told."""

    findings: Findings
    bundle: Bundle
    device: str
    how: str  # "recorded" or "launched"
    sources: Sources
    compared: int
    at_once: Sequence[int]
    params: SearchParams

    @property
    def searches(self) -> dict[int, int]:
        """Sentences that are compared, by beam size."""
        others = dict.fromkeys(OTHER_BEAMS, min(self.compared, OTHER_SENTENCES))
        return {**others, self.params.beam_size: self.compared}

    @property
    def expected_path(self) -> Path:
        return self.findings.path.with_name("expected.json")

    def expected(self) -> None:
        """Write the CPU's translations."""
        runner = CpuRunner(self.bundle, precision="fp32", num_threads=min(8, available_threads()))
        found: dict[int, list[Any]] = {}
        for beam_size, number in self.searches.items():
            params = self.params._replace(beam_size=beam_size)
            run = translate(EngineLoop(runner, SchedulerConfig()), self.sources[:number], params)
            found[beam_size] = [[run.found[n].token_ids, run.found[n].score] for n in range(len(run.found))]
        self.expected_path.write_text(json.dumps(found) + "\n", encoding="utf-8")

    def tokens(self) -> None:
        """Compare tokens with the CPU's."""
        expected = json.loads(self.expected_path.read_text(encoding="utf-8"))
        runner = self._open()
        ways = [("batch", self.params.beam_size, 0), ("stream", self.params.beam_size, 3)]
        for name, beam_size, arrivals in [*ways, *((f"beam {beam_size}", beam_size, 0) for beam_size in OTHER_BEAMS)]:
            wanted = [
                Hypothesis(tuple(ids), score, FinishReason.END_OF_SENTENCE) for ids, score in expected[str(beam_size)]
            ]
            params, sources = self.params._replace(beam_size=beam_size), self.sources[: len(wanted)]
            self.findings.part(
                f"tokens, {name}, {self.how}", partial(compare, runner, sources, params, wanted, arrivals)
            )

    def speed(self) -> None:
        """Time steps of a stream and tokens a second; look at the memory."""
        runner = self._open()
        self.findings.part(f"steps of a stream, {self.how}", partial(stream_steps, runner, self.sources, self.params))
        for number in self.at_once:
            measure = partial(speed, runner, self.sources, number, self.params)
            self.findings.part(f"speed, {number} at once, {self.how}", measure)
        if self.device == "cuda":
            measure_memory = partial(memory_under_load, runner, self.sources, self.params)
            self.findings.part(f"memory, {self.how}", measure_memory)

    def profile(self) -> None:
        """Take a step apart."""
        recorded = self.how == "recorded"
        measure = partial(parts_of_a_step, self.bundle, self.device, self.sources, self.params, recorded=recorded)
        self.findings.part(f"parts of a step, {self.how}", measure)

    def _open(self) -> CudaRunner:
        """Open the runner, and keep how long that takes and how much memory."""
        opened: list[CudaRunner] = []

        def measure() -> Figures:
            free = []
            if self.device == "cuda":
                require_cuda()
                free.append(free_gb())
            began = time.perf_counter()
            opened.append(open_runner(self.bundle, self.device, recorded=self.how == "recorded"))
            took = time.perf_counter() - began
            if self.device == "cuda":
                free.append(free_gb())
            return {"open_s": round(took, 2), "free_gb_before_and_after": free}

        self.findings.part(f"opened, {self.how}", measure)
        if not opened:
            raise typer.Exit(1)
        return opened[0]


def main(
    group: Annotated[str, typer.Argument(help="gpu, expected, tokens, speed or profile.")],
    bundle: Annotated[Path, typer.Option(help="With fp32 and fp16 graphs.")],
    out: Annotated[Path, typer.Option(help="Where gpu.json is.")],
    texts: Annotated[Path | None, typer.Option()] = None,
    device: Annotated[str, typer.Option()] = "cuda",
    recorded: Annotated[bool, typer.Option(help="Whether steps are recorded and replayed.")] = False,
    sentences: Annotated[int, typer.Option(min=1)] = 300,
    at_once: Annotated[list[int] | None, typer.Option(min=1)] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    seconds: Annotated[float, typer.Option(help="After which it ends and prints where it was.")] = 300.0,
) -> None:
    """Run one group."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds, exit=True)
    findings = Findings(out / "gpu.json")
    if group == "gpu":
        findings.part("gpu", describe_gpu)
        return
    loaded = Bundle.load(bundle)
    everything = load_sources(loaded, texts)
    everything = everything[:sentences] if device == "cpu" else everything  # a rehearsal is to be short
    told = Group(
        findings=findings,
        bundle=loaded,
        device=device,
        how="recorded" if recorded else "launched",
        sources=everything,
        compared=min(sentences, len(everything)),
        at_once=at_once or (),
        params=SearchParams(beam_size=beam_size, max_target_tokens=loaded.manifest.decoding.max_target_tokens),
    )
    {"expected": told.expected, "tokens": told.tokens, "speed": told.speed, "profile": told.profile}[group]()


def describe_gpu() -> Figures:
    """Return the card, its driver and its memory."""
    require_cuda()
    free, total = cudart.memory()
    driver = cudart.driver_version()
    name, architecture = cudart.card_name(), cudart.compute_capability()
    return {"name": name, "sm": architecture, "driver_cuda": driver, "total_gb": total / 1e9, "free_gb": free / 1e9}


if __name__ == "__main__":
    typer.run(main)
