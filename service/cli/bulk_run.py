"""What `dragoman bulk` does: a job opened, its missing parts translated, its output joined."""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from service.bulk.formats import format_of, name_of
from service.bulk.job import Description, Job
from service.bulk.parts import Part
from service.bulk.patience import MAX_OUTAGE_S
from service.bulk.ray_engine import RayConfig, translate_on_ray
from service.bulk.run import translate_parts
from service.bulk.source import Source
from service.bulk.workers import BundleWorker, ServerWorker
from service.cli.connection import Connection
from service.records import ModelInfo, TranslateOptions
from service.registry.model_info import index_of
from service.translation.search_options import search_params

ENGINES = ("local", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Everything the command line says; one of server and bundle is given."""

    source: Path
    output: Path
    column: str | None
    target: str
    server: str | None
    connection: Connection = field(default_factory=Connection)
    model: str | None
    source_language: str = ""  # BCP 47; empty: any
    target_language: str = ""
    bundle: Path | None
    precision: str | None
    options: TranslateOptions
    engine: str
    ray_address: str | None
    num_workers: int
    part_size: int
    is_forced: bool
    max_outage_s: float | None = None  # None: the usual

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"--engine is {self.engine!r}, there are {' and '.join(ENGINES)}")
        if self.source.suffix != self.output.suffix:
            raise ValueError(f"{self.output} has another suffix than {self.source}: the format stays the same")
        if self.source.resolve() == self.output.resolve():
            raise ValueError(f"{self.output} is {self.source}: the output is another file")
        if self.bundle is not None and self.max_outage_s is not None:
            raise ValueError("give --bundle or --max-outage, not both: without a server there is none to wait for")


def run(bulk: Bulk, console: Console) -> int:
    """Do what is missing; how many texts have no translation.

    Raises:
        ValueError: the files cannot be used, or a job of another kind is there.
        DragomanError: no such model, or no answer; what is done stays.
    """
    worker = _worker(bulk)
    info = worker.info()
    index_of([info], model=bulk.model, source_language=bulk.source_language, target_language=bulk.target_language)
    file_format = format_of(bulk.source, bulk.column, bulk.target)
    worker = worker.pinned(info)
    source = Source.of(bulk.source.resolve())
    job = Job(source, bulk.output.resolve(), file_format, _description(bulk, source, info, name_of(file_format)))
    with job.opened(is_forced=bulk.is_forced):
        missing = job.missing()
        with _Reporter(console, job, missing) as reporter:
            if not missing:
                pass  # nobody is started for nothing
            elif bulk.engine == "ray":
                config = RayConfig(address=bulk.ray_address, num_workers=bulk.num_workers)
                translate_on_ray(job, missing, worker, config, reporter.part_done)
            else:
                translate_parts(job, missing, worker(), reporter.part_done)
        job.finish()
    reporter.summarize()
    return reporter.num_failed


def _worker(bulk: Bulk) -> ServerWorker | BundleWorker:
    # Each worker of Ray is a process for itself: one thread each.
    threads = 1 if bulk.engine == "ray" else None
    if bulk.bundle is not None:
        return BundleWorker(
            bundle=bulk.bundle.resolve(), options=bulk.options, precision=bulk.precision, threads=threads
        )
    assert bulk.server
    client_config = bulk.connection.absolute().client_config
    return ServerWorker(
        address=bulk.server,
        client_config=client_config,
        options=bulk.options,
        model=bulk.model,
        source_language=bulk.source_language,
        target_language=bulk.target_language,
        max_outage_s=MAX_OUTAGE_S if bulk.max_outage_s is None else bulk.max_outage_s,
    )


def _description(bulk: Bulk, source: Source, info: ModelInfo, format_name: str) -> Description:
    params = search_params(info, bulk.options)
    return Description(
        source_sha256=source.sha256,
        format=format_name,
        part_size=bulk.part_size,
        model=info.name,
        model_version=info.version,
        precision=info.precision,
        options=asdict(params),
    )


class _Reporter:
    """A progress bar, and in the end a line."""

    def __init__(self, console: Console, job: Job, missing: list[Part]) -> None:
        self._console = console
        self._job = job
        waiting = set(missing)
        self._found_parts = [part for part in job.parts if part not in waiting]
        self._total = sum(part.count for part in job.parts)
        self._found = self._total - sum(part.count for part in missing)
        self._firsts = _first_records(job.parts)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = TaskID(0)
        self._began = time.monotonic()
        self._done = 0
        self.num_failed = 0

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("", total=self._total, completed=self._found, rate="")
        for part in self._found_parts:
            self._report_failures(part)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def part_done(self, part: Part) -> None:
        self._done += part.count
        self._bar.update(self._task, advance=part.count, rate=f"{self._rate():,.0f}/s")
        self._report_failures(part)

    def summarize(self) -> None:
        found = f", {self._found:,} were there" if self._found else ""
        self._say(f"{self._job.output}: {self._total:,} records{found}; {self._rate():,.1f} a second")

    def _report_failures(self, part: Part) -> None:
        for number, reason in self._job.failures(part):
            self.num_failed += 1
            self._say(f"record {self._firsts[part.index] + number + 1}: {reason}")

    def _say(self, line: str) -> None:
        self._console.out(line)  # as it is: `print` takes a path's [x] for markup and :x: for an emoji, and breaks it

    def _rate(self) -> float:
        return self._done / max(time.monotonic() - self._began, 1e-9)


def _first_records(parts: tuple[Part, ...]) -> list[int]:
    """The number of each part's first record."""
    firsts, total = [], 0
    for part in parts:
        firsts.append(total)
        total += part.count
    return firsts
