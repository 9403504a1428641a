"""The capacity card: a page of Markdown from what was measured, and its place in the index.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.loadtest.records import Summary
from tests.bench.capacity.stages import CALLERS, WARM_UP, Capacity

NEIGHBOUR = "](load-test-and-size.md)"  # in the index, the card's row follows this one's


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident MiB."""

    front: float
    engines: float  # all together

    def __str__(self) -> str:
        return f"{self.front + self.engines:.0f} MiB: front process {self.front:.0f}, engines {self.engines:.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything on the card."""

    command: str
    date: str
    minutes: float
    model: str  # name and version
    machine: Mapping[str, Any]  # as `race.machine.describe` has it
    ram_gib: float
    num_engines: int
    num_threads: int  # of each
    num_texts: int
    mean_characters: float
    stage_s: float
    num_stages: int
    num_warnings: int
    start_s: Sequence[float]
    memory_at_start: Memory
    memory_after: Memory
    capacities: Sequence[Capacity]
    reference_ms: float  # the shares are of the rate that holds this p99


def card(facts: Facts) -> str:
    """The page."""
    parts = (_head(facts), _machine(facts), _rates(facts), _callers(facts), _latency(facts), _how(facts))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def linked(index: str, page: str) -> str:
    """The index with a row for the page, as it was if it has one."""
    if f"]({page})" in index:
        return index
    lines = index.splitlines(keepends=True)
    after = next(number for number, line in enumerate(lines, start=1) if NEIGHBOUR in line)
    row = f"| know what the included English-German model carries on a stated machine | [{page}]({page}) |\n"
    return "".join([*lines[:after], row, *lines[after:]])


def _head(facts: Facts) -> Iterator[str]:
    yield "# Capacity of the included English-German model"
    yield ""
    yield f"Written by this command, {facts.date}, {facts.minutes:.0f} minutes; another machine has other figures:"
    yield ""
    yield f"    {facts.command}"


def _machine(facts: Facts) -> Iterator[str]:
    machine = facts.machine
    changed = ", with changes" if machine["uncommitted_changes"] else ""
    yield "## Machine"
    yield ""
    yield from _table(
        ("what", "is"),
        [
            ("CPU", machine["cpu"]),
            ("CPUs that may be used", str(machine["cpus"])),
            ("instructions for int8", ", ".join(machine["int8_instructions"]) or "none"),
            ("memory", f"{facts.ram_gib:.1f} GiB"),
            ("load average before", str(machine["load_average"])),
            ("Python, onnxruntime, numpy", f"{machine['python']}, {machine['onnxruntime']}, {machine['numpy']}"),
            ("commit", f"{machine['commit']}{changed}"),
            ("model", f"{facts.model}, int8"),
            ("server", f"this model alone: {facts.num_engines} engines, threads of each: {facts.num_threads}"),
            ("process start to SERVING", f"{min(facts.start_s):.2f} - {max(facts.start_s):.2f} s"),
            ("resident memory, started", str(facts.memory_at_start)),
            ("resident memory, after all of this", str(facts.memory_after)),
        ],
    )


def _rates(facts: Facts) -> Iterator[str]:
    targets = sorted({target for capacity in facts.capacities for target in capacity.held})
    yield "## Highest rate whose p99 stays within a time, calls a second"
    yield ""
    yield from _table(
        ("search", *(f"{target:g} ms" for target in targets)),
        [
            (str(capacity.search), *(_rate(capacity.held.get(target)) for target in targets))
            for capacity in facts.capacities
        ],
    )


def _callers(facts: Facts) -> Iterator[str]:
    yield "## Callers who wait for their answer before they call again"
    yield ""
    heads = (head for number in CALLERS for head in (f"{number} callers, texts/s", "p50 ms", "p99 ms"))
    rows = []
    for capacity in facts.capacities:
        summaries = (capacity.callers[number] for number in CALLERS)
        cells = (
            cell
            for each in summaries
            for cell in (f"{each.done_texts_rate:.0f}{_others(each)}", *_ms(each, "p50", "p99"))
        )
        rows.append((str(capacity.search), *cells))
    yield from _table(("search", *heads), rows)


def _latency(facts: Facts) -> Iterator[str]:
    yield f"## Latency at parts of the rate that holds {facts.reference_ms:g} ms"
    yield ""
    yield from _table(
        ("search", "part", "calls/s", "p50 ms", "p95 ms", "p99 ms"),
        [
            (
                str(capacity.search),
                f"{share:.0%}",
                f"{summary.offered_rate:.0f}{_others(summary)}",
                *_ms(summary, "p50", "p95", "p99"),
            )
            for capacity in facts.capacities
            for share, summary in capacity.shares.items()
        ],
    )


def _how(facts: Facts) -> Iterator[str]:
    yield "## How"
    yield ""
    yield f"{facts.num_texts:,} different sentences of {facts.mean_characters:.0f} characters in the mean, one a call."
    yield "The sender runs on the same machine and takes its part of the CPUs. Calls come at random times (Poisson),"
    yield f"and latency counts from when each was due. A stage is {facts.stage_s:g} s; its first {WARM_UP:.0%} do"
    yield "not count. In so short a stage a small overload has no time to build up a queue: plan with less than the"
    yield "highest rate, or measure with longer stages (`--seconds 60`). The sender was held up in"
    yield f"{facts.num_warnings} of {facts.num_stages} stages."


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.0f}" if rate else "none"


def _ms(summary: Summary, *names: str) -> Iterator[str]:
    return (f"{summary.latency_ms[name]:.0f}" if summary.latency_ms else "-" for name in names)


def _others(summary: Summary) -> str:
    """What was not answered, where there is such."""
    failed = summary.calls - summary.codes.get("OK", 0)
    return f" ({failed} of {summary.calls} failed)" if failed else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cells)} |"
