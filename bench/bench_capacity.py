"""The capacity card of the included English-German model on this machine: rates, throughput, latency, memory, start.

    python bench/bench_capacity.py [--seconds 10] [--write docs/capacity.md]

Starts the real server with its default configuration and loads it with the library of `dragoman loadtest`, beam 4 and
1, with and without shortlist.  About 60 stages: 12 minutes on two cores.  Nothing else should run.
Prints the card and one JSON line; with `--write` the card goes to a file.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from model.bundle import Bundle, default_bundle_dir
from protos import translation_pb2 as pb
from service.threads import available_threads
from service.tools.loadtest import (
    OK,
    LoadConfig,
    StageOutcome,
    Summary,
    highest_rate,
    run_closed,
    run_stage,
    summarize,
)
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start_default

COMMAND = "python bench/bench_capacity.py --write docs/capacity.md"
TARGET_MS = 500.0
CALLERS = (32, 128)
SHARES = (0.25, 0.5, 0.75)  # of the highest rate, at which latency is measured
SENTENCES = 2_000
STARTS = 3
SECONDS = 10.0
WARM_UP = 0.2  # of a stage
PRECISION = 0.06  # to which a highest rate is found
FIRST = 0.65  # of what callers who wait get, where the search for a rate begins: its next step is beyond the capacity
LATE_MS = 20.0  # p99 of how late calls were sent, beyond which the sender was held up


@dataclass(frozen=True, slots=True)
class Search:
    """What a call asks for."""

    beam_size: int
    use_shortlist: bool

    def __str__(self) -> str:
        return f"beam {self.beam_size}{', shortlist' if self.use_shortlist else ''}"


SEARCHES = [Search(beam_size, use_shortlist) for beam_size in (4, 1) for use_shortlist in (False, True)]


@dataclass(slots=True)
class Capacity:
    """What a server carries of one kind of search."""

    search: str
    held_rate: float = 0.0  # calls a second whose p99 stays within TARGET_MS; 0: none did
    callers: dict[int, Summary] = field(default_factory=dict)  # number of callers who wait -> what they got
    shares: dict[float, Summary] = field(default_factory=dict)  # share of the rate that holds the target -> latency


class Sender:
    """Sends the same texts to one server, stage after stage."""

    def __init__(self, address: str, stage_s: float) -> None:
        self._address = address
        self._stage_s = stage_s
        self.num_stages = 0
        self.num_late = 0

    def measure(self, search: Search) -> Capacity:
        """Run all stages of one kind of search."""
        options = pb.TranslateOptions(beam_size=search.beam_size, use_shortlist=search.use_shortlist)
        requests = [pb.TranslateRequest(texts=[text], options=options) for text in own_sentences(SENTENCES)]
        load = LoadConfig(address=self._address, requests=[request.SerializeToString() for request in requests])

        def at_rate(rate: float) -> Summary:
            return self._summary(run_stage(load, rate, self._stage_s))

        found = Capacity(str(search))
        for number in CALLERS:
            found.callers[number] = self._summary(run_closed(load, number, self._stage_s))
        first = round(FIRST * max(summary.done_rate for summary in found.callers.values()), 1)
        found.held_rate, _ = highest_rate(at_rate, p99_ms=TARGET_MS, first=first, precision=PRECISION)
        found.shares = {share: at_rate(share * found.held_rate) for share in SHARES if found.held_rate}
        return found

    def _summary(self, outcome: StageOutcome) -> Summary:
        summary = summarize(outcome.records, self._stage_s, warm_up_s=WARM_UP * self._stage_s)
        self.num_stages += 1
        self.num_late += summary.send_delay_ms_p99 > LATE_MS
        print(f"{summary.offered_rate:.1f}/s: {summary.codes}, {summary.latency_ms}", file=sys.stderr)
        return summary


@contextmanager
def serving(directory: Path, start_s: list[float]) -> Iterator[ServerProcess]:
    """Run a server of its own; how long its start took is added to `start_s`."""
    began = time.perf_counter()
    server = start_default(directory)
    start_s.append(round(time.perf_counter() - began, 2))
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def memory(server: ServerProcess) -> str:
    """Return what the server's processes have resident."""
    front = psutil.Process(server.process.pid)
    front_mib = front.memory_info().rss / 2**20
    engines_mib = sum(child.memory_info().rss for child in front.children()) / 2**20
    return f"{front_mib + engines_mib:.0f} MiB: scheduler process {front_mib:.0f}, engines {engines_mib:.0f}"


def measure(stage_s: float, scratch: Path, searches: Sequence[Search] = SEARCHES) -> dict[str, Any]:
    """Return everything on the card; `capacities` are records, the rest can be written as JSON."""
    began, about = time.monotonic(), machine.describe(available_threads())
    start_s: list[float] = []
    for _ in range(STARTS - 1):
        with serving(scratch, start_s):
            pass
    with serving(scratch, start_s) as server:
        sender, at_start = Sender(server.address, stage_s), memory(server)
        capacities = [sender.measure(search) for search in searches]
        after, num_engines = memory(server), len(server.engine_pids())
    manifest = Bundle.load(default_bundle_dir()).manifest
    return {
        "command": COMMAND if stage_s == SECONDS else f"{COMMAND} --seconds {stage_s:g}",
        "date": datetime.now(UTC).date().isoformat(),
        "minutes": round((time.monotonic() - began) / 60),
        "model": f"{manifest.name} {manifest.version}",
        "machine": {**about, "ram_gib": round(psutil.virtual_memory().total / 2**30, 1)},
        "num_engines": num_engines,
        "stage_s": stage_s,
        "num_stages": sender.num_stages,
        "num_late": sender.num_late,
        "start_s": start_s,
        "memory": [at_start, after],
        "capacities": capacities,
    }


def card(found: dict[str, Any]) -> str:
    """Return the page."""
    about, capacities = found["machine"], found["capacities"]
    facts = [
        ("CPU", about["cpu"]),
        ("CPUs that may be used", str(about["cpus"])),
        ("instructions for int8", ", ".join(about["int8_instructions"]) or "none"),
        ("memory", f"{about['ram_gib']} GiB"),
        ("load average before", str(about["load_average"])),
        ("Python, onnxruntime, numpy", f"{about['python']}, {about['onnxruntime']}, {about['numpy']}"),
        ("commit", f"{about['commit']}{', with changes' if about['uncommitted_changes'] else ''}"),
        ("model", f"{found['model']}, int8"),
        ("server", f"this model alone: {found['num_engines']} engines"),
        ("process start to SERVING", f"{min(found['start_s']):.2f} - {max(found['start_s']):.2f} s"),
        ("resident memory, started", found["memory"][0]),
        ("resident memory, after all of this", found["memory"][1]),
    ]
    callers = [
        (capacity.search, str(number), f"{summary.done_texts_rate:.0f}{_others(summary)}", *_ms(summary))
        for capacity in capacities
        for number, summary in capacity.callers.items()
    ]
    latency = [
        (capacity.search, f"{share:.0%}", f"{summary.offered_rate:.0f}{_others(summary)}", *_ms(summary))
        for capacity in capacities
        for share, summary in capacity.shares.items()
    ]
    held = [(capacity.search, f"{capacity.held_rate:.0f}" if capacity.held_rate else "none") for capacity in capacities]
    return f"""# Capacity of the included English-German model

Written by this command, {found["date"]}, {found["minutes"]} minutes; another machine has other figures:

    {found["command"]}

## Machine

{_table(("what", "is"), facts)}

## Highest rate whose p99 stays within {TARGET_MS:g} ms

{_table(("search", "calls/s"), held)}

## Callers who wait for their answer before they call again

{_table(("search", "callers", "texts/s", "p50 ms", "p95 ms", "p99 ms"), callers)}

## Latency at parts of the highest rate

{_table(("search", "part", "calls/s", "p50 ms", "p95 ms", "p99 ms"), latency)}

## How

{SENTENCES:,} different sentences of our own, one a call. The sender runs on the same machine and takes its part of the
CPUs. Calls come at random times (Poisson), and latency counts from when each was due. A stage is {found["stage_s"]:g}
s; its first {WARM_UP:.0%} do not count. In so short a stage a small overload has no time to build up a queue: plan with
less than the highest rate, or measure with longer stages (`--seconds 60`). The sender was held up in
{found["num_late"]} of {found["num_stages"]} stages.
"""


def _ms(summary: Summary) -> Iterator[str]:
    return (f"{summary.latency_ms[name]:.0f}" if summary.latency_ms else "-" for name in ("p50", "p95", "p99"))


def _others(summary: Summary) -> str:
    failed = summary.calls - summary.codes.get(OK, 0)
    return f" ({failed} of {summary.calls} failed)" if failed else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def main() -> None:
    """Print the card, and all as JSON."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=SECONDS, help="of each stage, a fifth of warm-up included")
    options.add_argument("--write", type=Path, metavar="FILE", help="where the card goes, like docs/capacity.md")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(arguments.seconds, Path(directory))
    if arguments.write:
        arguments.write.write_text(card(found), encoding="utf-8")
    print(card(found))
    capacities = [asdict(capacity) for capacity in found["capacities"]]
    print(json.dumps({"bench": "capacity", **found, "capacities": capacities}))


if __name__ == "__main__":  # the processes that send calls, which are spawned, import this module again
    main()
