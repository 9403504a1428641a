"""`dragoman loadtest`: makes requests of texts, sends them in stages, shows a live line, writes a report."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle, islice, product
from math import ceil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from model.files import require_writable, write_whole
from service.cli.options import (
    READY_WITHIN_S,
    Connection,
    FromLanguage,
    Model,
    Server,
    ToLanguage,
    ranged,
    server_address,
    text_in,
    with_examples,
    with_options,
)
from service.client.channel import credentials
from service.client.messages import encode_request
from service.errors import Unavailable
from service.ranges import CALLERS, MILLISECONDS, PROCESSES, RATE, SECONDS, SEED, TEXTS, WAIT
from service.records import BEAM, Priority, TranslateOptions, TranslationRequest
from service.tools.loadtest import (
    ARRIVALS,
    OK,
    LoadConfig,
    OnProgress,
    SendProgress,
    StageOutcome,
    Summary,
    highest_rate,
    require_server,
    run_closed,
    run_stage,
    summarize,
)

_SHOWN = ("p50", "p95", "p99", "p99.9")
_COLUMNS = ("offered/s", "answered/s", "texts/s", *(f"{name} ms" for name in _SHOWN), "other codes")
_SEND_DELAY_LIMIT_MS = 20.0
_CPU_LIMIT = 0.8  # of a CPU for each worker
_MAX_CALLS = 10_000_000  # of a stage
_SAMPLE = (
    "The children are playing in the garden.",
    "Could you tell me where the station is?",
    "He had forgotten to close the window before he left the house, and it rained all night.",
    "Thank you.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """Everything that the command line says; exactly one of rates, find_p99_ms and concurrency is used."""

    server: Server = None
    connection: Connection = field(default_factory=Connection)
    source_language: FromLanguage = ""
    target_language: ToLanguage = ""
    model: Model = None
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts to send, one a line.  [default: four of our own]")
    ] = None
    texts_per_call: Annotated[int, ranged(TEXTS, help="Taken again from the first where they run out.")] = 1
    rates: Annotated[list[float] | None, ranged(RATE, "--rate", help="Calls a second; a stage for each.")] = None
    find_p99_ms: Annotated[
        float | None,
        ranged(MILLISECONDS, "--find-p99", help="Find the highest rate whose p99 stays within this."),
    ] = None
    first_rate: Annotated[float, ranged(RATE, help="Where --find-p99 begins.")] = 10.0
    concurrency: Annotated[int | None, ranged(CALLERS, help="A closed loop of so many callers instead.")] = None
    duration_s: Annotated[float, ranged(SECONDS, "--duration", help="Of each stage.")] = 30.0
    warm_up_s: Annotated[float, ranged(WAIT, "--warm-up", help="Cut from the start of each stage.")] = 5.0
    arrivals: Annotated[str, typer.Option(help="poisson, or constant gaps.")] = "poisson"
    beam_sizes: Annotated[list[int] | None, ranged(BEAM, "--beam-size", "-b", help="Several are taken in turn.")] = None
    priorities: Annotated[
        list[str] | None,
        typer.Option(
            "--priority",
            metavar="CLASS",
            help="interactive or batch; several are taken in turn.  [default: what the key may have]",
        ),
    ] = None
    uses_cache: Annotated[
        bool, typer.Option("--cache", help="Sentences may be answered from the server's translation cache, too.")
    ] = False
    timeout_s: Annotated[float, ranged(SECONDS, "--timeout", help="Deadline of a call.")] = 60.0
    wait_s: Annotated[float, ranged(WAIT, "--wait", help="How long to wait for the server to be ready.")] = (
        READY_WITHIN_S
    )
    num_workers: Annotated[int, ranged(PROCESSES, "--workers", help="Processes that send.")] = 1
    seed: Annotated[int, ranged(SEED, help="Of the arrivals.")] = 1
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all figures here, as JSON; `dragoman plan` reads it.")
    ] = None

    def __post_init__(self) -> None:
        chosen = [bool(self.rates), self.find_p99_ms is not None, self.concurrency is not None]
        if sum(chosen) != 1:
            raise ValueError("choose one of --rate, --find-p99 and --concurrency")
        if self.arrivals not in ARRIVALS:
            raise ValueError(f"arrivals is {self.arrivals!r}, there are {' and '.join(ARRIVALS)}")
        num_calls = max(self.rates or [0.0]) * self.duration_s
        if num_calls > _MAX_CALLS:
            raise ValueError(
                f"--rate {max(self.rates or ()):g} for --duration {self.duration_s:g} makes {num_calls:,.0f} calls, "
                f"at most {_MAX_CALLS:,} are kept in memory"
            )
        if self.warm_up_s >= self.duration_s:
            raise ValueError(
                f"the warm-up is {self.warm_up_s:g} s, it must be shorter than a stage of {self.duration_s:g} s"
            )
        if self.report is not None:
            require_writable(self.report)


@with_examples(
    "dragoman loadtest --rate 50",
    "dragoman loadtest --rate 20 --rate 40 --rate 80 --duration 60 --texts sentences.en --report load.json",
    "dragoman loadtest --find-p99 250 --texts sentences.en",
    "dragoman loadtest --concurrency 32 --beam-size 1 --beam-size 4",
    "dragoman loadtest --rate 200 --priority interactive --priority batch",
)
@with_options
def loadtest(command: LoadTest) -> None:
    """Send calls at a rate, whatever the server does, and report latency from when each was due.

    One call is made first: without a server, or with a key, model or option that it refuses, there is no load.

    Exit code 0 when the load was made, however the server did; 2: wrong usage, or a wrong API key; 3: no server; 130:
    Ctrl-C. With the last two, the finished stages are shown and reported all the same.
    """
    run(command, Console(width=None if sys.stdout.isatty() else 140))


def run(command: LoadTest, console: Console) -> None:
    """Make the load, print a table and write the report, also of a test that Ctrl-C or the server ends early."""
    test = _Test(command, console)
    test.require_server()
    try:
        headline = test.run()
    except (KeyboardInterrupt, Unavailable):
        if test.stages:
            test.publish(f"ended early; in the finished stages {_most_answered(test.stages)}")
        raise
    test.publish(headline)


class _Test:
    def __init__(self, command: LoadTest, console: Console) -> None:
        self._command = command
        self._console = console
        self._address = server_address(command.server)
        # Without retries, or refusals would not be seen.
        client = replace(command.connection.absolute().client_config(), retries=False)
        if client.tls is not None:
            credentials(client.tls)  # a certificate that cannot be read fails here, not in each worker
        self._load = LoadConfig(
            address=self._address,
            requests=requests_of(command),
            client=client,
            arrivals=command.arrivals,
            timeout_s=command.timeout_s,
            num_workers=command.num_workers,
            seed=command.seed,
        )
        self.stages: list[tuple[str, Summary]] = []
        self._warnings: list[str] = []

    def require_server(self) -> None:
        """Return when the server takes calls; raises DragomanError if it does not, or refuses them all."""
        require_server(self._load, self._command.wait_s)

    def run(self) -> str:
        """Run all stages and return their result in one sentence."""
        command = self._command
        if command.find_p99_ms is not None:
            held, tried = highest_rate(self._at_rate, p99_ms=command.find_p99_ms, first=command.first_rate)
            found = f"{held:.1f} calls/s hold" if held else "no rate held"
            return f"{found} a p99 of {command.find_p99_ms:g} ms{_why_unanswered(*tried[-1])}"
        if command.concurrency is not None:
            name = f"{command.concurrency} callers"
            with self._shown(name, None) as on_progress:
                outcome = run_closed(self._load, command.concurrency, command.duration_s, on_progress)
            return f"{self._add(name, outcome).done_rate:.1f} calls/s answered to {name}"
        for rate in command.rates or ():
            self._at_rate(rate)
        return _most_answered(self.stages)

    def _at_rate(self, rate: float) -> Summary:
        duration_s = self._command.duration_s
        with self._shown(f"{rate:.1f} calls/s", rate * duration_s) as on_progress:
            return self._add(f"{rate:.1f} calls/s", run_stage(self._load, rate, duration_s, on_progress))

    def _add(self, name: str, outcome: StageOutcome) -> Summary:
        command = self._command
        summary = summarize(outcome.records, command.duration_s, warm_up_s=command.warm_up_s)
        self.stages.append((name, summary))
        span_s = float(outcome.records.done.max()) if len(outcome.records) else 1.0
        load = outcome.cpu_s / span_s / command.num_workers
        if load > _CPU_LIMIT or summary.send_delay_ms_p99 > _SEND_DELAY_LIMIT_MS:  # its figures are its own then
            can_grow = load > _CPU_LIMIT and command.num_workers < (os.cpu_count() or 1)
            advice = "more --workers, or another machine" if can_grow else "another machine"
            self._warnings.append(
                f"{name}: the load generator was busy ({load:.0%} of a CPU for each worker, calls sent up to "
                f"{summary.send_delay_ms_p99:.0f} ms late): use {advice}"
            )
        return summary

    @contextmanager
    def _shown(self, name: str, expected: float | None) -> Iterator[OnProgress]:
        columns = (TextColumn(name), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("connecting", total=expected)

            def on_progress(progress: SendProgress) -> None:
                text = f"{progress.sent} sent, {progress.sent - progress.done} under way, {progress.failed} failed"
                bar.update(task, completed=progress.sent, description=text)

            yield on_progress

    def publish(self, headline: str) -> None:
        """Print the stages and write the report."""
        command, console = self._command, self._console
        table = Table("stage", *_COLUMNS, title=f"{escape(self._address)}, {os.cpu_count()} CPUs here")
        for name, summary in self.stages:
            table.add_row(name, *_figures(summary))
        console.print(table)
        for warning in self._warnings:
            console.print(warning, style="yellow", markup=False)
        console.print(headline, style="bold", markup=False)
        if command.report is None:
            return
        report = {
            "target": self._address,
            "command": f"dragoman {shlex.join(sys.argv[1:])}",
            "headline": headline,
            "warnings": self._warnings,
            "arrivals": command.arrivals,
            "texts_per_call": command.texts_per_call,
            "warm_up_s": command.warm_up_s,
            "callers": command.concurrency,
            "stages": [{"name": name, **asdict(summary)} for name, summary in self.stages],
        }
        write_whole(command.report, json.dumps(report, indent=2).encode())
        console.print(f"written: {command.report}", markup=False, soft_wrap=True)


def _figures(summary: Summary) -> list[str]:
    """Return the cells of one stage, one for each column."""
    latency = [f"{summary.latency_ms[name]:.1f}" if summary.latency_ms else "-" for name in _SHOWN]
    others = ", ".join(f"{name} {count}" for name, count in summary.codes.items() if name != OK)
    rates = (summary.offered_rate, summary.done_rate, summary.done_texts_rate)
    return [*(f"{rate:.1f}" for rate in rates), *latency, others or "-"]


def _most_answered(stages: Sequence[tuple[str, Summary]]) -> str:
    return f"at most {max(summary.done_rate for _, summary in stages):.1f} calls/s answered"


def _why_unanswered(rate: float, summary: Summary) -> str:
    """Say why the last stage of a search has no answer; empty if it has one."""
    if OK in summary.codes:
        return ""
    codes = ", ".join(f"{name} {count}" for name, count in summary.codes.items())
    return f"; of {rate:.1f} calls/s none was answered: {codes or 'none was due after the warm-up'}"


def requests_of(command: LoadTest) -> list[bytes]:
    """Return serialised requests: the texts in order, `texts_per_call` each, with beam sizes and priorities in turn.

    Every request has its number of texts: where they run out, they begin again, within one request too.
    """
    classes = {item.label: item for item in Priority}
    for name in command.priorities or ():
        if name not in classes:
            raise ValueError(f"--priority is {name!r}, there are {' and '.join(classes)}")
    texts = list(_SAMPLE)
    if command.texts is not None:
        texts = [line for line in text_in(command.texts).removeprefix("\ufeff").split("\n") if line.strip()]
        if not texts:
            raise ValueError(f"{command.texts} has no text")
    size = command.texts_per_call
    again = cycle(texts)
    batches = [list(islice(again, size)) for _ in range(ceil(len(texts) / size))]
    use_cache = None if command.uses_cache else False
    options = [TranslateOptions(beam_size=size, use_cache=use_cache) for size in command.beam_sizes or (None,)]
    kinds = list(product(options, [classes[name] for name in command.priorities or ()] or (None,)))
    usual = TranslationRequest(
        model=command.model, source_language=command.source_language, target_language=command.target_language
    )
    return [
        encode_request(replace(usual, texts=batch, options=option, priority=priority)).SerializeToString()
        for number in range(len(kinds))
        for index, batch in enumerate(batches)
        for option, priority in [kinds[(index + number) % len(kinds)]]
    ]
