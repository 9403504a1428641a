"""Tables for people: a regime each, the sweeps whole, and the checks in a line."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.race.ceiling import ROWS, Ceiling
from tests.bench.race.cells import CTRANSLATE2, LENGTH_TOLERANCE, Record
from tests.bench.race.sweep import Sweep

WIDTH = 150

Columns = dict[str, Callable[[Record], str]]  # title -> cell

_HEAD: Columns = {
    "model": lambda row: f"{row['shape']} {row['precision']} beam {row['beam_size']}",
    "text": lambda row: row["text"],
    "shortlist": lambda row: row["shortlist"],
    "against": lambda row: row["peer"],
}
_TAIL: Columns = {
    "times as fast": lambda row: f"{row['speedup']:.2f} ({row['speedup_min']:.2f} - {row['speedup_max']:.2f})",
    "identical": lambda row: f"{row['identical']:.1%} of {row['sentences']}",
}
_SINGLE: Columns = {
    "Dragoman p50/p95 ms": lambda row: f"{row['dragoman_p50_ms']:.1f} / {row['dragoman_p95_ms']:.1f}",
    "peer p50/p95 ms": lambda row: f"{row['peer_p50_ms']:.1f} / {row['peer_p95_ms']:.1f}",
    "latency ratio": lambda row: f"{row['latency_ratio']:.2f}",
}
_CLOSED: Columns = {
    "size": lambda row: str(row["size"]),
    "Dragoman /s": lambda row: f"{row['dragoman_per_s']:.1f}",
    "peer /s": lambda row: f"{row['peer_per_s']:.1f}",
    "ceiling /s": lambda row: f"{row['ceiling_per_s']:.1f}" if "ceiling_per_s" in row else "",
    "shares of it": lambda row: f"{row['dragoman_share']:.0%}, {row['peer_share']:.0%}" if "peer_share" in row else "",
}
_STREAM: Columns = {
    "Dragoman /s": lambda row: f"{row['dragoman_rate']:.1f}",
    "peer /s": lambda row: f"{row['peer_rate']:.1f}",
    "times the rate": lambda row: f"{row['speedup']:.2f}",
    "p95 bound ms": lambda row: f"{row['bound_ms']:.0f}",
    "at equal rates: p50 / p95 ms": lambda row: "\n".join(_equal_rate(pair) for pair in row["equal_rates"]),
}
TABLES: dict[str, tuple[str, Columns]] = {
    "single": ("one sentence at a time", _HEAD | _SINGLE | _TAIL),
    "closed": ("a closed batch: sentences per second", _HEAD | _CLOSED | _TAIL),
    "stream": ("a stream: the highest rate whose p95 latency stays under the bound", _HEAD | _STREAM),
}


def print_sweep(console: Console, name: str, sweep: Sweep[Any]) -> None:
    """Every setting that was tried, the best first."""
    console.print(f"  {name} settings, by what they cost on the tuning text:")
    for number, (setting, cost) in enumerate(sorted(sweep.costs.items(), key=lambda item: item[1])):
        mark = "->" if number == 0 else "  "
        console.print(f"  {mark} {cost * 1e3:9.1f} ms  {setting}")


def print_tables(console: Console, rows: Sequence[Record]) -> None:
    """One for each regime that was raced."""
    for regime, (title, columns) in TABLES.items():
        of_regime = [row for row in rows if row["regime"] == regime]
        if not of_regime:
            continue
        shown = {name: cell for name, cell in columns.items() if _says_something(name, cell, of_regime)}
        table = Table(*shown, title=title, title_justify="left", show_lines=regime == "stream")
        for row in of_regime:
            table.add_row(*(cell(row) for cell in shown.values()))
        console.print(table)


def _says_something(name: str, cell: Callable[[Record], str], rows: Sequence[Record]) -> bool:
    usual = {"shortlist": {"none"}, "against": {CTRANSLATE2}}
    return {cell(row) for row in rows} != usual.get(name)


def print_ceilings(console: Console, ceilings: dict[tuple[str, str], Ceiling]) -> None:
    """The speed of bare products."""
    for (shape, precision), ceiling in ceilings.items():
        speeds = ", ".join(f"{product}: {speed:.0f}" for product, speed in ceiling.record().items())
        console.print(f"products of {ROWS} rows, {shape} {precision}, {ceiling.threads} threads, GOP/s: {speeds}")


def print_checks(console: Console, rows: Sequence[Record]) -> None:
    """fp32: both sides must have produced as many tokens."""
    for row in rows:
        if "same_length" in row:
            verdict = "ok" if row["same_length"] else "DIFFERENT: the times cannot be compared"
            tokens = f"{row['dragoman_tokens']} and {row['peer_tokens']} output tokens"
            console.print(f"{row['title']}: {tokens}, within {LENGTH_TOLERANCE:.1%}: {verdict}")


def _equal_rate(pair: dict[str, Record]) -> str:
    ours, theirs = pair["dragoman"], pair["peer"]
    latencies = ", ".join(f"{side['p50_ms']:.0f} / {side['p95_ms']:.0f}" for side in (ours, theirs))
    return f"{ours['rate']:.1f}/s: {latencies}"
