"""Dragoman's engine in the race: in this process, or several in processes of their own, as the server runs them.

One engine needs no process: then both sides are called as libraries.  Several do, since the loop of each is Python.
A caller stands here where the server has its queue, with the server's rule: the oldest sentence goes to the engine with
the fewest, of equals to the one with the fewest source tokens, as far as each can start them at once or next.
"""

import asyncio
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.race.regimes import Finished
from bench.race.text import Sentence
from model.bundle import Bundle
from model.manifest import GPU_PRECISION
from service.child_process import FRAME_HEADER_BYTES, Ready, environment, frame_length, from_payload, to_frame
from service.engine.loop import EngineLoop
from service.engine.runner import RecordingRunner
from service.engine.wire import (
    GPU_BUDGETS,
    EngineSpec,
    Job,
    JobResult,
    Outcome,
    Report,
    Runtime,
    SchedulerConfig,
    SearchParams,
)
from service.engine.worker import command_line, create_runner
from service.scheduler.packed_weights import PackedWeights

ROWS, STREAM_ROWS, GPU_ROWS = (32, 64, 128, 256), (16, 32, 64, 128), (256, 512, 1_024, 2_048)
QUIET_S = 3_600.0  # between signs of life: an idle engine must not wake up while the other side is timed
START_TIMEOUT_S = 120.0
SILENCE_TIMEOUT_S = 300.0  # without any result: something is broken
LOOKAHEAD_JOBS = 8  # beyond what an engine can run; the server's default


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetting:
    """What can be chosen for a machine."""

    engines: int = 1
    threads: int = 1  # of each
    max_rows: int = 128  # live hypotheses of each

    def __str__(self) -> str:
        return f"{self.engines} x {self.threads} threads, {self.max_rows} rows"


class OurSide:
    """The bundle, precision and search, and the settings that an engine can have."""

    def __init__(
        self,
        bundle: Bundle,
        precision: str,
        params: SearchParams,
        layouts: Sequence[tuple[int, int]],
        runtime: Runtime = "auto",
    ) -> None:
        self._runtime: Runtime = runtime
        self._bundle = bundle
        self._precision = precision
        self._params = params
        self._on_gpu = precision == GPU_PRECISION  # where one engine is enough
        self._layouts = [] if self._on_gpu else [{"engines": engines, "threads": each} for engines, each in layouts]
        self.usual = EngineSetting(max_rows=GPU_ROWS[0]) if self._on_gpu else EngineSetting(**self._layouts[0])

    def choices(self, regime: str, batch: Sequence[Sentence]) -> list[list[dict[str, Any]]]:
        """Return for each choice its values; rows beyond those of a closed batch would stay empty."""
        if regime == "single":  # a second engine would have nothing to do
            return [[{**layout, "engines": 1} for layout in self._layouts]]
        sizes = GPU_ROWS if self._on_gpu else STREAM_ROWS if regime == "stream" else ROWS
        beam_size = self._params.beam_size
        if regime == "closed":
            most = next((rows for rows in sizes if rows >= len(batch) * beam_size), sizes[-1])
        else:
            most = sizes[-1]
        return [self._layouts, [{"max_rows": rows} for rows in sizes if beam_size <= rows <= most]]

    def open(self, setting: EngineSetting) -> "EngineHere | EngineProcesses":
        """Return one engine in this process, or several in processes."""
        spec = self._spec(setting)
        return EngineHere(spec, self._params) if setting.engines == 1 else EngineProcesses(spec, self._params, setting)

    def open_streaming(self, setting: EngineSetting) -> "EngineProcesses":
        """Return engines in processes: the loop steps while this process waits for the next arrival."""
        return EngineProcesses(self._spec(setting), self._params, setting)

    def _spec(self, setting: EngineSetting) -> EngineSpec:
        return EngineSpec(
            bundle_dir=self._bundle.directory,
            device="cuda" if self._on_gpu else "cpu",
            runtime=self._runtime,
            precision=self._precision,
            num_threads=setting.threads,
            shared_weights=setting.engines > 1,
            scheduler=replace(GPU_BUDGETS if self._on_gpu else SchedulerConfig(), max_rows=setting.max_rows),
            heartbeat_interval_s=QUIET_S,
        )


def result_of(outcome: Outcome) -> JobResult:
    """Return the result; in a race nothing may fail.

    Raises:
        TypeError: a sentence failed.
    """
    if not isinstance(outcome, JobResult):
        raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
    return outcome


def longest_first(sentences: Sequence[Sentence], params: SearchParams) -> list[Job]:
    """Return jobs in the order in which a closed batch is submitted, as `dragoman translate` does."""
    order = sorted(range(len(sentences)), key=lambda number: -len(sentences[number].ids))
    return [Job(id=number, source_ids=sentences[number].ids, params=params) for number in order]


class EngineHere:
    """One engine in this process: `Contestant`."""

    def __init__(self, spec: EngineSpec, params: SearchParams) -> None:
        runner = create_runner(spec)
        if isinstance(runner, RecordingRunner):  # as an engine process does when it starts
            runner.record(spec.scheduler)
        self._loop = EngineLoop(runner, spec.scheduler)
        self._params = params

    def translate(self, sentences: Sequence[Sentence]) -> list[JobResult]:
        for job in longest_first(sentences, self._params):
            self._loop.submit(job)
        results: dict[int, JobResult] = {}
        while not self._loop.is_idle:
            for outcome in self._loop.step():
                results[outcome.job_id] = result_of(outcome)
        return [results[number] for number in range(len(sentences))]

    def tokens(self, answer: JobResult) -> list[int]:
        return list(answer.hypotheses[0].token_ids)

    def close(self) -> None:
        pass


class EngineProcesses:
    """One or several engines in processes of their own: `Contestant` and `Streaming`."""

    def __init__(self, spec: EngineSpec, params: SearchParams, setting: EngineSetting) -> None:
        self._params = params
        self._room = setting.max_rows // params.beam_size + LOOKAHEAD_JOBS
        self._waiting: deque[Job] = deque()
        self._selector = selectors.SelectSelector()  # epoll would round waits up to milliseconds
        self._packed = PackedWeights(spec)
        asyncio.run(self._packed.prepare(START_TIMEOUT_S))
        self._engines = [_RacingEngine(self._packed.spec) for _ in range(setting.engines)]
        try:
            for engine in self._engines:
                engine.wait_until_ready()
                self._selector.register(engine.channel, selectors.EVENT_READ, engine)
        except BaseException:
            self.close()
            raise

    def submit(self, number: int, sentence: Sentence) -> None:
        self._waiting.append(Job(id=number, source_ids=sentence.ids, params=self._params))
        self._dispatch()

    def finished(self, timeout_s: float) -> list[Finished]:
        results = self._receive(timeout_s)
        now = time.perf_counter()
        return [Finished(result.job_id, now) for result in results]

    def translate(self, sentences: Sequence[Sentence]) -> list[JobResult]:
        self._waiting.extend(longest_first(sentences, self._params))
        self._dispatch()
        results: dict[int, JobResult] = {}
        while len(results) < len(sentences):
            arrived = self._receive(SILENCE_TIMEOUT_S)
            if not arrived:
                raise TimeoutError(f"no engine gave a result for {SILENCE_TIMEOUT_S:g} s")
            results |= {result.job_id: result for result in arrived}
        return [results[number] for number in range(len(sentences))]

    def tokens(self, answer: JobResult) -> list[int]:
        return list(answer.hypotheses[0].token_ids)

    def close(self) -> None:
        self._selector.close()
        for engine in self._engines:
            engine.kill()
        self._packed.remove()

    def _receive(self, timeout_s: float) -> list[JobResult]:
        """Return results of all engines and fill the freed places at once.  Engines also report without any."""
        results: list[JobResult] = []
        until = time.perf_counter() + timeout_s
        while not results and (events := self._selector.select(max(0.0, until - time.perf_counter()))):
            for key, _ in events:
                results += key.data.receive()
        self._dispatch()
        return results

    def _dispatch(self) -> None:
        """Hand out what waits, as far as there is room; one message for each engine."""
        loads, dealt = [engine.load for engine in self._engines], [list[Job]() for _ in self._engines]
        while self._waiting and min(loads)[0] < self._room:
            job, number = self._waiting.popleft(), loads.index(min(loads))
            loads[number] = loads[number][0] + 1, loads[number][1] + len(job.source_ids)
            dealt[number].append(job)
        for engine, jobs in zip(self._engines, dealt, strict=True):
            if jobs:
                engine.send(jobs)


class _RacingEngine:
    """An engine process, and our end of its socket."""

    def __init__(self, spec: EngineSpec) -> None:
        self.channel, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self._process = subprocess.Popen(
                command_line(descriptor),
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__,
                env=environment(),
            )
        self.channel.settimeout(START_TIMEOUT_S)
        self.channel.sendall(to_frame(spec))
        self._stream = self.channel.makefile("rb", buffering=0)
        self._running: dict[int, int] = {}  # job -> its source tokens

    @property
    def load(self) -> tuple[int, int]:
        """Jobs it has, and their source tokens."""
        return len(self._running), sum(self._running.values())

    def wait_until_ready(self) -> None:
        if not isinstance(ready := self._read(), Ready):
            raise TypeError(f"the engine process did not start: {ready}")

    def send(self, jobs: Sequence[Job]) -> None:
        self._running |= {job.id: len(job.source_ids) for job in jobs}
        self.channel.sendall(to_frame(tuple(jobs)))

    def receive(self) -> list[JobResult]:
        """Return the results in the next report, which is there."""
        report = self._read()
        if not isinstance(report, Report):
            raise RuntimeError("the engine process has ended")  # noqa: TRY004 - not a wrong argument
        for outcome in report.outcomes:
            del self._running[outcome.job_id]
        return [result_of(outcome) for outcome in report.outcomes]

    def _read(self) -> object | None:
        """Return the next record, None when the process is gone."""
        header = self._exactly(FRAME_HEADER_BYTES)
        return from_payload(self._exactly(frame_length(header))) if header else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._stream.close()
        self.channel.close()

    def _exactly(self, num_bytes: int) -> bytes:
        """Read so many bytes, fewer at the end, unbuffered: the selector must see every report that is not read yet."""
        received = b""
        while len(received) < num_bytes and (piece := self._stream.read(num_bytes - len(received))):
            received += piece
        return received
