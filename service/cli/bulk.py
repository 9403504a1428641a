"""`dragoman bulk`: opens a job, has its missing parts translated, joins the output."""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from model.files import kind_of
from service.cli.options import (
    BundleDir,
    Connection,
    FromLanguage,
    Model,
    Precision,
    Server,
    ToLanguage,
    bundle_dir,
    ranged,
    require_bundle_options,
    server_address,
    with_examples,
    with_options,
)
from service.cli.output import EXIT_SOME_FAILED
from service.models.catalogue import index_of
from service.models.info import search_params
from service.ranges import OUTAGE, PROCESSES, RECORDS
from service.records import BEAM, TranslateOptions
from service.tools.bulk.formats import BulkPart
from service.tools.bulk.job import BulkJob, BulkSource, JobDescription, format_name, format_of, translate_parts
from service.tools.bulk.workers import MAX_OUTAGE_S, BundleWorker, ServerWorker, translate_on_ray

ENGINES = ("local", "ray")
# Of the search: what a run notes, so that it goes on with the same.
_OPTIONS = ("beam_size", "num_hypotheses", "length_penalty", "patience", "max_target_tokens", "use_shortlist")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Everything that the command line says; either a server or a bundle is used."""

    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help=".txt, .csv, .tsv (quotes are text), .jsonl, .parquet; others are lines."),
    ]
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Same format as IN.")]
    column: Annotated[str | None, typer.Option(help="Column or field with the text.  [default: text]")] = None
    target: Annotated[str, typer.Option(help="Column or field for the translation.")] = "translation"
    server: Server = None
    connection: Connection = field(default_factory=Connection)
    source_language: FromLanguage = ""
    target_language: ToLanguage = ""
    model: Model = None
    bundle: BundleDir = None
    precision: Precision = None
    beam_size: Annotated[int | None, ranged(BEAM, "--beam-size", "-b", help="1 is greedy search.")] = None
    shortlist: Annotated[bool | None, typer.Option("--shortlist", help="Only likely target words: faster.")] = None
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local"
    ray_address: Annotated[str | None, typer.Option(help="Of a running cluster.  [default: this machine]")] = None
    num_workers: Annotated[int, ranged(PROCESSES, "--workers", help="With --engine ray.")] = 2
    part_size: Annotated[int, ranged(RECORDS, help="Records kept together; what a kill can cost.")] = 1000
    max_outage_s: Annotated[
        float | None,
        ranged(
            OUTAGE,
            "--max-outage",
            help="Of a server: seconds at a stretch without an answer, or any word of room, before the run ends; they "
            "count from the first call that fails. The start takes at most 30 of them.  [default: 300]",
        ),
    ] = None
    is_forced: Annotated[
        bool, typer.Option("--force", help="Begin again; an OUT that is there stays until the new one is whole.")
    ] = False

    def __post_init__(self) -> None:
        require_bundle_options(bundle_dir(self.bundle), server=self.server, precision=self.precision)
        if self.engine not in ENGINES:
            raise ValueError(f"--engine is {self.engine!r}, there are {' and '.join(ENGINES)}")
        if self.source.suffix != self.output.suffix:
            raise ValueError(f"{self.output} has another suffix than {self.source}: the format stays the same")
        if kind := kind_of(self.source):
            raise ValueError(f"{self.source} is {kind}: IN is a file, which is read several times")
        if kind := kind_of(self.output):
            raise ValueError(f"{self.output} is {kind}: OUT is a file, beside which its parts grow")
        if self.source.resolve() == self.output.resolve():
            raise ValueError(f"{self.output} is {self.source}: the output is another file")
        if self.bundle and self.max_outage_s is not None:
            raise ValueError("give --bundle or --max-outage, not both: without a server there is none to wait for")
        if not self.source.exists():
            raise ValueError(f"{self.source} does not exist: IN is a file")

    @property
    def options(self) -> TranslateOptions:
        """How to search."""
        return TranslateOptions(beam_size=self.beam_size, use_shortlist=self.shortlist)


@with_examples(
    "dragoman bulk english.txt german.txt",
    "dragoman bulk reviews.csv reviews.de.csv --column review",
    "dragoman bulk corpus.jsonl out.jsonl --column text --target text_de --bundle default",
    "dragoman bulk corpus.parquet out.parquet --engine ray --workers 8 --bundle ./my-model",
)
@with_options
def bulk(wanted: Bulk) -> None:
    """Translate a file of any length; the same command goes on where a killed one stopped.

    The output appears when it is complete; until then its parts are in OUT.parts. Nothing is lost or doubled by a kill
    at any moment, and the result is the same as that of a run without one. A server lets other calls go first; the run
    waits for room as long as the server is alive, and says so.

    On a Ray cluster, files (IN, OUT, bundle, --ca, --api-key-file) must lie where all nodes see them.

    Exit code 0: all done; 1: some texts failed, and their translations are empty; 2: wrong usage, a file that cannot be
    used, or a wrong API key; 3: no answer, or another version of the model in mid-file: go on later.
    """
    if run(wanted, Console(stderr=True, width=None if sys.stderr.isatty() else 140)):
        raise typer.Exit(EXIT_SOME_FAILED)


def run(wanted: Bulk, console: Console) -> int:
    """Translate what is missing, and return the number of texts that have no translation."""
    worker = _worker(wanted)
    info = worker.info()
    index_of([info], model=wanted.model, source_language=wanted.source_language, target_language=wanted.target_language)
    file_format = format_of(wanted.source, wanted.column, wanted.target)
    worker = worker.pinned(info)
    source = BulkSource.of(wanted.source.resolve())
    params = search_params(info, wanted.options)
    description = JobDescription(
        source_sha256=source.sha256,
        format=format_name(file_format),
        part_size=wanted.part_size,
        model=info.name,
        model_version=info.version,
        precision=info.precision,
        options={name: getattr(params, name) for name in _OPTIONS},
    )
    job = BulkJob(source, wanted.output.resolve(), file_format, description)
    with job.opened(is_forced=wanted.is_forced):
        missing = job.missing()
        with _Reporter(console, job, missing) as reporter:
            if not missing:
                pass  # no worker starts for nothing
            elif wanted.engine == "ray":
                translate_on_ray(job, missing, worker, wanted.ray_address, wanted.num_workers, reporter.part_done)
            else:
                translate_parts(job, missing, worker.open(), reporter.part_done)
        job.finish()
    reporter.summarize()
    return reporter.num_failed


def _worker(wanted: Bulk) -> ServerWorker | BundleWorker:
    directory = bundle_dir(wanted.bundle)
    if directory is not None:
        return BundleWorker(
            bundle=directory.resolve(),
            options=wanted.options,
            precision=wanted.precision,
            threads=1 if wanted.engine == "ray" else None,  # each worker of Ray is a process for itself
        )
    return ServerWorker(
        address=server_address(wanted.server),
        client_config=wanted.connection.absolute().client_config,
        options=wanted.options,
        model=wanted.model,
        source_language=wanted.source_language,
        target_language=wanted.target_language,
        max_outage_s=MAX_OUTAGE_S if wanted.max_outage_s is None else wanted.max_outage_s,
    )


class _Reporter:
    """Shows a progress bar, a line for each failure, and a line at the end."""

    def __init__(self, console: Console, job: BulkJob, missing: list[BulkPart]) -> None:
        self._console = console
        self._job = job
        waiting = set(missing)
        self._found_parts = [part for part in job.parts if part not in waiting]
        self._found = sum(part.count for part in self._found_parts)
        self._firsts: list[int] = []  # the number of each part's first record
        self._total = 0
        for part in job.parts:
            self._firsts.append(self._total)
            self._total += part.count
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

    def part_done(self, part: BulkPart) -> None:
        self._done += part.count
        self._bar.update(self._task, advance=part.count, rate=f"{self._rate():,.0f}/s")
        self._report_failures(part)

    def summarize(self) -> None:
        found = f", {self._found:,} were there" if self._found else ""
        self._say(f"{self._job.output}: {self._total:,} records{found}; {self._rate():,.1f} a second")

    def _report_failures(self, part: BulkPart) -> None:
        for number, reason in self._job.failures(part):
            self.num_failed += 1
            self._say(f"record {self._firsts[part.index] + number + 1}: {reason}")

    def _say(self, line: str) -> None:
        self._console.out(line)  # as it is: `print` takes a path's [x] for markup and :x: for an emoji, and breaks it

    def _rate(self) -> float:
        return self._done / max(time.monotonic() - self._began, 1e-9)
