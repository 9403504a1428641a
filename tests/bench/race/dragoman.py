"""Dragoman's engine in the race: in this process, or several in processes of their own, as the server runs them.

One engine needs no process: then both contestants are called as libraries.  Several do, since the loop of each is
Python.  Here a caller stands where the server has its queue, with its rules (`service/engines/dispatcher.py`): it
gives the oldest sentence to the engine with the fewest, of equals to the one with the fewest source tokens, as far as
each can start them at once or next; several that all find room are dealt by length (`service/queue/placement.py`).
"""

import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from model.bundle import Bundle
from model.manifest import GPU_PRECISION
from service.engine.job import Job, JobResult, Outcome, SearchParams
from service.engine.loop import EngineLoop
from service.engine.process import (
    FRAME_HEADER_BYTES,
    Ready,
    Report,
    Start,
    command_line,
    create_runner,
    environment,
    frame_length,
    from_payload,
    to_frame,
)
from service.engine.scheduler import GPU_BUDGETS, SchedulerConfig, source_width
from service.engine.spec import Device, EngineSpec
from service.queue.placement import Room, Share, deal
from tests.bench.race.contestants import Finished, SearchOptions, Sentence, Tokens

QUIET_S = 3_600.0  # between signs of life: an idle engine must not wake up while the other side is timed
START_TIMEOUT_S = 120.0
SILENCE_TIMEOUT_S = 300.0  # without any result: something is broken
LOOKAHEAD_JOBS = 8  # beyond what an engine can run; dispatch's default


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetting:
    """What can be chosen for a machine."""

    engines: int = 1
    threads: int = 1  # of each
    max_rows: int = 128  # live hypotheses of each

    def __str__(self) -> str:
        return f"{self.engines} x {self.threads} threads, {self.max_rows} rows"

    def scheduler(self, device: Device) -> SchedulerConfig:
        """The budgets of each engine."""
        usual = SchedulerConfig() if device == "cpu" else GPU_BUDGETS
        return replace(usual, max_rows=self.max_rows)

    def spec(self, bundle: Bundle, precision: str) -> EngineSpec:
        """What each engine is told."""
        device = device_of(precision)
        return EngineSpec(
            bundle_dir=bundle.directory,
            device=device,
            precision=precision,
            num_threads=self.threads,
            shared_weights=device == "cpu" and self.engines > 1,
            scheduler=self.scheduler(device),
            heartbeat_interval_s=QUIET_S,
        )


def device_of(precision: str) -> Device:
    """Half precision is a GPU's, on all sides."""
    return "cuda" if precision == GPU_PRECISION else "cpu"


def search_params(options: SearchOptions) -> SearchParams:
    """The race's options in the engine's words."""
    return SearchParams(
        beam_size=options.beam_size, max_target_tokens=options.max_target_tokens, use_shortlist=options.shortlist
    )


def result_of(outcome: Outcome) -> JobResult:
    """The result; in a race nothing may fail.

    Raises:
        TypeError: a sentence failed.
    """
    if not isinstance(outcome, JobResult):
        raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
    return outcome


def best_tokens(result: JobResult) -> Tokens:
    """The best hypothesis."""
    return list(result.hypotheses[0].token_ids)


def longest_first(sentences: Sequence[Sentence]) -> list[int]:
    """Numbers of the sentences in the order in which a closed batch is submitted, as `dragoman translate` does."""
    return sorted(range(len(sentences)), key=lambda number: -len(sentences[number].ids))


class EngineHere:
    """One engine in this process."""

    def __init__(self, bundle: Bundle, precision: str, setting: EngineSetting, options: SearchOptions) -> None:
        spec = setting.spec(bundle, precision)
        self._loop = EngineLoop(create_runner(spec), spec.scheduler)
        self._params = search_params(options)

    def translate(self, sentences: Sequence[Sentence]) -> list[JobResult]:
        """See `Contestant`."""
        for number in longest_first(sentences):
            self._loop.submit(Job(id=number, source_ids=sentences[number].ids, params=self._params))
        results: dict[int, JobResult] = {}
        while not self._loop.is_idle:
            for outcome in self._loop.step():
                results[outcome.job_id] = result_of(outcome)
        return [results[number] for number in range(len(sentences))]

    def tokens(self, answer: Any) -> Tokens:
        """See `Contestant`."""
        return best_tokens(answer)

    def close(self) -> None:
        """Nothing to do."""


class EngineProcesses:
    """One or several engines in processes of their own: `Contestant` and `Streaming`."""

    def __init__(self, bundle: Bundle, precision: str, setting: EngineSetting, options: SearchOptions) -> None:
        spec = setting.spec(bundle, precision)
        self._params = search_params(options)
        self._budgets = spec.scheduler
        self._room = setting.max_rows // options.beam_size + LOOKAHEAD_JOBS
        self._waiting: deque[Job] = deque()
        self._selector = selectors.SelectSelector()  # epoll would round waits up to milliseconds
        self._engines = [_Process.start(spec) for _ in range(setting.engines)]
        try:
            for engine in self._engines:
                engine.wait_until_ready()
                self._selector.register(engine.channel, selectors.EVENT_READ, engine)
        except BaseException:
            self.close()
            raise

    def submit(self, number: int, sentence: Sentence) -> None:
        """See `Streaming`."""
        self._waiting.append(Job(id=number, source_ids=sentence.ids, params=self._params))
        self._dispatch()

    def finished(self, timeout_s: float) -> list[Finished]:
        """See `Streaming`."""
        results = self._receive(timeout_s)
        now = time.perf_counter()
        return [Finished(result.job_id, now) for result in results]

    def translate(self, sentences: Sequence[Sentence]) -> list[JobResult]:
        """See `Contestant`."""
        order = longest_first(sentences)
        self._waiting.extend(Job(id=number, source_ids=sentences[number].ids, params=self._params) for number in order)
        self._dispatch()
        results: dict[int, JobResult] = {}
        while len(results) < len(sentences):
            arrived = self._receive(SILENCE_TIMEOUT_S)
            if not arrived:
                raise TimeoutError(f"no engine gave a result for {SILENCE_TIMEOUT_S:g} s")
            results |= {result.job_id: result for result in arrived}
        return [results[number] for number in range(len(sentences))]

    def tokens(self, answer: Any) -> Tokens:
        """See `Contestant`."""
        return best_tokens(answer)

    def close(self) -> None:
        """End the processes."""
        self._selector.close()
        for engine in self._engines:
            engine.kill()

    def _receive(self, timeout_s: float) -> list[JobResult]:
        """Results of all engines; freed places are filled at once.  Engines also report without any."""
        results: list[JobResult] = []
        until = time.perf_counter() + timeout_s
        while not results and (events := self._selector.select(max(0.0, until - time.perf_counter()))):
            for key, _ in events:
                results += key.data.receive()
        self._dispatch()
        return results

    def _dispatch(self) -> None:
        """Deal out what waits; one message for each engine."""
        numbers = self._dealt_by_length() or self._dealt_in_turn()
        jobs = [self._waiting.popleft() for _ in numbers]
        for number, engine in enumerate(self._engines):
            if mine := [job for job, to in zip(jobs, numbers, strict=True) if to == number]:
                engine.send(mine)

    def _dealt_by_length(self) -> list[int] | None:
        """An engine for each sentence that waits; None where there are not several, or no room for all."""
        if min(len(self._waiting), len(self._engines)) < 2:
            return None
        return deal([Share.of(job) for job in self._waiting], [self._room_of(engine) for engine in self._engines])

    def _room_of(self, engine: "_Process") -> Room:
        beam_size = self._params.beam_size
        return Room(
            work=engine.source_tokens * beam_size,
            free_rows=self._budgets.max_rows - engine.num_running * beam_size,
            free_tokens=self._budgets.max_source_tokens - sum(map(source_width, engine.running.values())),
        )

    def _dealt_in_turn(self) -> list[int]:
        """An engine for each of the oldest sentences, as far as there is room."""
        loads, numbers = [engine.load for engine in self._engines], list[int]()
        for job in self._waiting:
            number = min(range(len(loads)), key=loads.__getitem__)
            count, tokens = loads[number]
            if count >= self._room:
                break
            loads[number] = count + 1, tokens + len(job.source_ids)
            numbers.append(number)
        return numbers


class _Process:
    """An engine process and our end of its socket."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self.channel = channel
        self.running: dict[int, int] = {}  # job -> its source tokens
        self._process = process
        self._stream = channel.makefile("rb", buffering=0)

    @property
    def num_running(self) -> int:
        """Jobs it has."""
        return len(self.running)

    @property
    def source_tokens(self) -> int:
        """Of the jobs it has."""
        return sum(self.running.values())

    @property
    def load(self) -> tuple[int, int]:
        """Jobs it has, and their source tokens."""
        return self.num_running, self.source_tokens

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """The process, still loading."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            process = subprocess.Popen(
                command_line(descriptor),
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__,
                env=environment(),
            )
        ours.settimeout(START_TIMEOUT_S)
        ours.sendall(to_frame(spec))
        return cls(process, ours)

    def wait_until_ready(self) -> None:
        """Return once the model is loaded and warm.

        Raises:
            RuntimeError: it will never be.
        """
        match self._read():
            case Ready():
                return
            case other:
                raise RuntimeError(f"the engine process did not start: {other}")

    def send(self, jobs: Sequence[Job]) -> None:
        """Queue jobs there."""
        self.running |= {job.id: len(job.source_ids) for job in jobs}
        self.channel.sendall(to_frame(tuple(Start(job) for job in jobs)))

    def receive(self) -> list[JobResult]:
        """The results in the next report, which is there."""
        report = self._read()
        if not isinstance(report, Report):
            raise RuntimeError("the engine process has ended")  # noqa: TRY004 - not a wrong argument
        for outcome in report.outcomes:
            del self.running[outcome.job_id]
        return [result_of(outcome) for outcome in report.outcomes]

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        self._stream.close()
        self.channel.close()

    def _read(self) -> object | None:
        """The next record, None when the process is gone."""
        header = self._exactly(FRAME_HEADER_BYTES)
        return from_payload(self._exactly(frame_length(header))) if header else None

    def _exactly(self, num_bytes: int) -> bytes:
        """So many bytes; fewer at the end.  Unbuffered: the selector must see every report that is not read yet."""
        received = b""
        while len(received) < num_bytes and (piece := self._stream.read(num_bytes - len(received))):
            received += piece
        return received
