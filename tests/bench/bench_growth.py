"""What the engine costs as its work grows: length, rows, beam, queue, one long sentence among short ones, memory.

    python tests/bench/bench_growth.py                              # about four minutes
    python tests/bench/bench_growth.py --panel waiting --panel memory
    python tests/bench/bench_growth.py --bundle BUNDLE --turns 9

In this process, one thread, CPU time, sentences cut from our own text that go on to a given length whatever the model
says.  A row-step is one hypothesis in one decoder step.  Prints a table a panel and, last, one line of JSON; draws
growth.png into --out.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import Bundle, default_bundle_dir
from model.tokenizer import Tokenizer
from tests.bench.growth.load import EndlessRunner, Text
from tests.bench.growth.panels import PANELS, Row, Setup
from tests.bench.race.machine import describe

COLUMNS = 4  # of the picture


def main(
    panel: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PANELS)}; may be repeated.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Default: en-de.")] = None,
    precision: Annotated[str | None, typer.Option(help="int8 or fp32.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="Of each point; the median counts.")] = 5,
    turn_s: Annotated[float, typer.Option(min=0.01, help="CPU seconds of a turn.")] = 0.25,
    out: Annotated[Path, typer.Option(help="Where growth.png goes.")] = Path("build/bench"),
) -> None:
    """Measure, print and draw."""
    if unknown := set(panel or []) - set(PANELS):
        raise typer.BadParameter(f"there is no panel {', '.join(unknown)}; there are {', '.join(PANELS)}")
    loaded = Bundle.load(bundle or default_bundle_dir())
    about = f"{loaded.manifest.name} {loaded.manifest.version}, {precision or 'best precision'}, 1 thread"
    machine = describe(cpus=1)
    setup = Setup(
        runner=EndlessRunner(loaded, precision=precision),
        text=Text(Tokenizer.load(loaded.tokenizer_path)),
        turn_s=turn_s,
        turns=turns,
    )
    found: dict[str, list[Row]] = {}
    for name in [name for name in PANELS if name in (panel or PANELS)]:
        found[name] = PANELS[name].measure(setup)
        print_table(PANELS[name].title, found[name])
    out.mkdir(parents=True, exist_ok=True)
    draw(found, out / "growth.png", about)
    rounded = {name: [_rounded(row) for row in rows] for name, rows in found.items()}
    print(json.dumps({"bench": "growth", "model": about, "turns": turns, "turn_s": turn_s, **machine, **rounded}))


def print_table(title: str, rows: Sequence[Row]) -> None:
    """One panel."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(str(value) for value in _rounded(row).values()))
    Console(width=120).print(table)


def draw(found: dict[str, list[Row]], file: Path, about: str) -> None:
    """One picture with all panels."""
    num_columns = min(COLUMNS, len(found))
    num_lines = -(-len(found) // num_columns)
    figure = Figure(figsize=(5.2 * num_columns, 4.2 * num_lines), layout="constrained")
    for place, (name, rows) in enumerate(found.items(), start=1):
        axes = figure.add_subplot(num_lines, num_columns, place)
        PANELS[name].draw(axes, rows)
        axes.set_title(PANELS[name].title)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(f"Cost as work grows ({about})")
    figure.savefig(file, dpi=110)


def _rounded(row: Row) -> Row:
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    typer.run(main)
