"""`dragoman plan`: reads reports, fits a replica, simulates replicas; answers as a table, as JSON and as a chart."""

import io
import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from model.files import require_writable, write_whole
from service.cli.options import AsJson, examples, ranged, text_in
from service.extras import how_to_install
from service.planning.fit import Fit, fit
from service.planning.measured import Measured, read
from service.planning.search import Demand, Planner, Prediction
from service.planning.simulation import Balancer
from service.ranges import MILLISECONDS, RATE, REPLICAS, SEED, SIMULATED_TEXTS

_GOOD_ERROR = 0.15  # of a stage's p99
_LATE = 0.1  # of a stage's p99, by which its calls were sent late: the machine had no time, not only the server
_BUSY = 0.85  # of the capacity; beyond, a small error in either means a long queue
_SUFFIXES = (".png", ".svg")

EPILOG = examples(
    "dragoman loadtest --rate 5 --rate 20 --rate 30 --rate 40 --rate 60 --texts sentences.en --report one.json",
    "dragoman plan one.json --rate 500 --p99-ms 400",
    "dragoman plan one.json --rate 500 --p99-ms 400 --spare 2 --balancer two-choices --json",
    "dragoman plan one.json more.json --rate 500 --p99-ms 400 --chart plan.png",
)


def plan(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT...", help="JSON of `dragoman loadtest` against one replica.")
    ],
    rate: Annotated[float, ranged(RATE, help="Texts a second that all replicas get together.")],
    p99_ms: Annotated[float, ranged(MILLISECONDS, help="99 of 100 calls must be answered within this.")],
    spare: Annotated[int, ranged(REPLICAS, help="Replicas that may be lost; the rest still hold the target.")] = 0,
    texts_per_call: Annotated[int | None, ranged(SIMULATED_TEXTS, help="In a call.  [default: as measured]")] = None,
    balancer: Annotated[Balancer, typer.Option(help="Who gets the next call.")] = Balancer.LEAST_REQUEST,
    seed: Annotated[int, ranged(SEED, help="Of the simulated arrivals.")] = 1,
    as_json: AsJson = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="p99 against replicas, .png or .svg; needs matplotlib.")
    ] = None,
) -> None:
    """Say how many replicas hold a p99 at a rate, from load tests of one replica.

    A model of the replica is fitted to the latency at each measured rate, then several of them are simulated behind a
    balancer. Measure a low rate, some between, and one beyond what the replica holds; with the texts, beam size and
    machine of the real load. Arrivals are taken as random and independent; a load with bursts needs more.

    Exit code 0 with an answer; 2: wrong usage, or no number of replicas holds the target.
    """
    check_chart(chart)
    measured = read((str(file), text_in(file)) for file in reports)
    SIMULATED_TEXTS.check("the number of texts in a call of the reports", measured.texts_per_call)
    demand = Demand(
        rate=rate,
        p99_s=p99_ms / 1e3,
        texts_per_call=texts_per_call or measured.texts_per_call,
        balancer=balancer,
    )
    found = answer(measured, demand, spare, seed)
    if as_json:
        print(json.dumps(to_json(found), indent=2))
    else:
        _print(found, Console(width=None if sys.stdout.isatty() else 140))
    if chart is not None:
        _draw(found, chart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The number of replicas, and what it rests on."""

    demand: Demand
    fit: Fit
    needed: int  # replicas that must be up
    spare: int
    predictions: tuple[Prediction, ...]  # every number that was simulated, ascending
    warnings: list[str]

    @property
    def replicas(self) -> int:
        """Number of replicas to run: those needed and the spare ones."""
        return self.needed + self.spare


def answer(measured: Measured, demand: Demand, spare: int, seed: int) -> Answer:
    """Find the number of replicas; raises ValueError if the target cannot be held."""
    progress = Console(stderr=True)
    with progress.status("fitting a model of one replica"):
        fitted = fit(measured)
    with progress.status("simulating replicas"):
        planner = Planner(fitted.replica, demand, seed=seed)
        needed = planner.needed()
        for number in {max(1, needed - 1), needed + 1, needed + spare}:
            planner.predict(number)
    return Answer(
        demand=demand,
        fit=fitted,
        needed=needed,
        spare=spare,
        predictions=tuple(planner.predictions[number] for number in sorted(planner.predictions)),
        warnings=_warnings(demand.rate, measured, fitted, needed),
    )


def _warnings(rate: float, measured: Measured, fitted: Fit, needed: int) -> list[str]:
    warnings = list(measured.left_out)
    warnings += [
        f"{fitted_stage.stage.name}: the model's p99 is off by {fitted_stage.p99_error:+.0%}"
        for fitted_stage in fitted.stages
        if abs(fitted_stage.p99_error) > _GOOD_ERROR
    ]
    warnings += [
        f"{stage.name}: calls were sent up to {stage.send_delay_s * 1e3:.0f} ms late; measure again, on a quiet machine"
        for stage in measured.stages
        if stage.send_delay_s > _LATE * stage.latency_s[0.99]
    ]
    if not fitted.is_capacity_measured and measured.highest_rate < 0.95 * fitted.replica.capacity:
        warnings.append(
            f"no stage was beyond what the replica can do: its {fitted.replica.capacity:.0f} texts/s are inferred; "
            "measure a higher rate, too"
        )
    each = rate / needed
    if each > _BUSY * fitted.replica.capacity:
        more = needed * fitted.replica.capacity / rate - 1
        warnings.append(f"{needed} replicas have little room: {more:.0%} more texts would overload them")
    if each > measured.highest_rate:
        warnings.append(f"{each:.1f} texts/s for each replica is more than the {measured.highest_rate:.1f} measured")
    lowest = measured.stages[0].traffic.rate
    if lowest > 0.4 * fitted.replica.capacity:
        warnings.append(f"the lowest rate measured, {lowest:.1f} texts/s, is not low: measure a tenth of the capacity")
    return warnings


def check_chart(file: Path | None) -> None:
    """Raise ValueError or OSError for a chart that could not be drawn, before the work is done."""
    if file is not None and file.suffix not in _SUFFIXES:
        raise ValueError(f"{file} has the suffix {file.suffix!r}, there are {', '.join(_SUFFIXES)}")
    if file is not None and find_spec("matplotlib") is None:
        raise ValueError(f"{file} needs matplotlib: {how_to_install('loadtest')}")
    if file is not None:
        require_writable(file)


def to_json(answer: Answer) -> dict[str, object]:
    """Return the answer for JSON: milliseconds; null where replicas are overloaded."""
    replica = answer.fit.replica
    return {
        "replicas": answer.replicas,
        "needed": answer.needed,
        "spare": answer.spare,
        "rate": answer.demand.rate,
        "p99_ms": answer.demand.p99_s * 1e3,
        "balancer": answer.demand.balancer.value,
        "replica": {
            "texts_per_second": replica.capacity,
            "is_capacity_measured": answer.fit.is_capacity_measured,
            "texts_at_once": replica.rows,
            "growth": replica.growth,
            "work_ms": replica.work.mean_s * 1e3,
        },
        "fit": [
            {
                "stage": fitted.stage.name,
                "texts_per_second": fitted.stage.traffic.rate,
                "measured_p99_ms": fitted.stage.latency_s[0.99] * 1e3,
                "model_p99_ms": fitted.simulated_s[0.99] * 1e3,
            }
            for fitted in answer.fit.stages
        ],
        "predictions": [
            {
                "replicas": prediction.num_replicas,
                "utilization": prediction.utilization,
                "p50_ms": _finite_ms(prediction.p50_s),
                "p99_ms": _finite_ms(prediction.p99_s),
                "p99_low_ms": _finite_ms(prediction.p99_spread_s[0]),
                "p99_high_ms": _finite_ms(prediction.p99_spread_s[1]),
            }
            for prediction in answer.predictions
        ],
        "warnings": answer.warnings,
    }


def _finite_ms(seconds: float) -> float | None:
    return seconds * 1e3 if isfinite(seconds) else None


def _print(answer: Answer, console: Console) -> None:
    replica = answer.fit.replica
    console.print(
        f"one replica: {replica.capacity:.1f} texts/s at most, {replica.work.mean_s * 1e3:.0f} ms for a text alone, "
        f"{replica.rows} at once, each slowed down to {replica.speed(replica.rows):.0%} when full"
    )
    table = Table("stage", "texts/s", "measured p99 ms", "model p99 ms", "error", title="One replica, and its model")
    for fitted in answer.fit.stages:
        measured_ms, model_ms = fitted.stage.latency_s[0.99] * 1e3, fitted.simulated_s[0.99] * 1e3
        rate = f"{fitted.stage.traffic.rate:.1f}"
        table.add_row(fitted.stage.name, rate, f"{measured_ms:.1f}", f"{model_ms:.1f}", f"{fitted.p99_error:+.0%}")
    console.print(table)
    remarks = {answer.replicas: "with the spare ones", answer.needed: "needed"}
    table = Table("replicas up", "busy", "p50 ms", "p99 ms", "runs between", "", title="Replicas together, simulated")
    for prediction in answer.predictions:
        number, busy = str(prediction.num_replicas), f"{prediction.utilization:.0%}"
        if isfinite(prediction.p99_s):
            times_s = (prediction.p50_s, prediction.p99_s, *prediction.p99_spread_s)
            p50, p99, low, high = (f"{seconds * 1e3:.0f}" for seconds in times_s)
            table.add_row(number, busy, p50, p99, f"{low} - {high}", remarks.get(prediction.num_replicas, ""))
        else:
            table.add_row(number, busy, "-", "-", "-", "overloaded")
    console.print(table)
    for warning in answer.warnings:
        console.print(f"[yellow]{warning}[/yellow]")
    spare = f" ({answer.needed} needed, {answer.spare} to spare)" if answer.spare else ""
    noun = "replica holds" if answer.replicas == 1 else "replicas hold"
    target = f"a p99 of {answer.demand.p99_s * 1e3:g} ms at {answer.demand.rate:g} texts/s"
    console.print(f"[bold]{answer.replicas} {noun} {target}{spare}[/bold]")


def _draw(answer: Answer, file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    shown = [prediction for prediction in answer.predictions if isfinite(prediction.p99_s)]
    numbers = [prediction.num_replicas for prediction in shown]
    axes.plot(numbers, [prediction.p99_s * 1e3 for prediction in shown], "o-", label="p99")
    axes.plot(numbers, [prediction.p50_s * 1e3 for prediction in shown], "o-", label="p50")
    axes.axhline(answer.demand.p99_s * 1e3, color="tab:red", linewidth=1, label="target")
    axes.set(xlabel=f"replicas, {answer.demand.rate:g} texts/s together", ylabel="latency, ms")
    axes.set_xticks(numbers)
    axes.grid(visible=True, alpha=0.3)
    axes.set_ylim(bottom=0.0)
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix.removeprefix("."))
    write_whole(file, drawn.getvalue())
