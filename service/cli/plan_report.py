"""The answer of `dragoman plan` as a table, as JSON, and as a chart."""

import json
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.table import Table

from service.cli.plan_run import Answer
from service.extras import how_to_install
from service.planning.search import Prediction

_SUFFIXES = (".png", ".svg")


def check_chart(file: Path | None) -> None:
    """Refuse a chart that could not be drawn, before the work is done.

    Raises:
        ValueError: an unknown suffix, or there is no matplotlib.
    """
    if file is not None and file.suffix not in _SUFFIXES:
        raise ValueError(f"{file} has the suffix {file.suffix!r}, there are {', '.join(_SUFFIXES)}")
    if file is not None and find_spec("matplotlib") is None:
        raise ValueError(f"{file} needs matplotlib: {how_to_install('loadtest')}")


def show(answer: Answer, console: Console, *, as_json: bool, chart: Path | None) -> None:
    """Print it, and draw it if there is a chart."""
    if as_json:
        print(json.dumps(to_json(answer), indent=2))
    else:
        _print(answer, console)
    if chart is not None:
        _draw(answer, chart)


def to_json(answer: Answer) -> dict[str, object]:
    """Milliseconds; null where replicas are overloaded."""
    replica = answer.fit.replica
    return {
        "replicas": answer.replicas,
        "needed": answer.needed,
        "spare": answer.question.spare,
        "rate": answer.question.rate,
        "p99_ms": answer.question.p99_ms,
        "balancer": answer.question.balancer.value,
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
        "predictions": [_prediction(prediction) for prediction in answer.predictions],
        "warnings": list(answer.warnings),
    }


def _prediction(prediction: Prediction) -> dict[str, object]:
    figures = {"p50_ms": prediction.p50_s, "p99_ms": prediction.p99_s}
    figures |= dict(zip(("p99_low_ms", "p99_high_ms"), prediction.p99_spread_s, strict=True))
    return {
        "replicas": prediction.num_replicas,
        "utilization": prediction.utilization,
        **{name: seconds * 1e3 if isfinite(seconds) else None for name, seconds in figures.items()},
    }


def _print(answer: Answer, console: Console) -> None:
    replica = answer.fit.replica
    console.print(
        f"one replica: {replica.capacity:.1f} texts/s at most, {replica.work.mean_s * 1e3:.0f} ms for a text alone, "
        f"{replica.rows} at once, each slowed down to {replica.speed(replica.rows):.0%} when full"
    )
    console.print(_fit_table(answer))
    console.print(_prediction_table(answer))
    for warning in answer.warnings:
        console.print(f"[yellow]{warning}[/yellow]")
    question = answer.question
    spare = f" ({answer.needed} needed, {question.spare} to spare)" if question.spare else ""
    noun = "replica holds" if answer.replicas == 1 else "replicas hold"
    target = f"a p99 of {question.p99_ms:g} ms at {question.rate:g} texts/s"
    console.print(f"[bold]{answer.replicas} {noun} {target}{spare}[/bold]")


def _fit_table(answer: Answer) -> Table:
    table = Table("stage", "texts/s", "measured p99 ms", "model p99 ms", "error", title="One replica, and its model")
    for fitted in answer.fit.stages:
        measured_ms, model_ms = fitted.stage.latency_s[0.99] * 1e3, fitted.simulated_s[0.99] * 1e3
        rate = f"{fitted.stage.traffic.rate:.1f}"
        table.add_row(fitted.stage.name, rate, f"{measured_ms:.1f}", f"{model_ms:.1f}", f"{fitted.p99_error:+.0%}")
    return table


def _prediction_table(answer: Answer) -> Table:
    table = Table("replicas up", "busy", "p50 ms", "p99 ms", "runs between", "", title="Replicas together, simulated")
    for prediction in answer.predictions:
        low, high = (_ms(seconds) for seconds in prediction.p99_spread_s)
        table.add_row(
            str(prediction.num_replicas),
            f"{prediction.utilization:.0%}",
            _ms(prediction.p50_s),
            _ms(prediction.p99_s),
            f"{low} - {high}" if isfinite(prediction.p99_s) else "-",
            _remark(answer, prediction),
        )
    return table


def _remark(answer: Answer, prediction: Prediction) -> str:
    if not isfinite(prediction.p99_s):
        return "overloaded"
    if prediction.num_replicas == answer.needed:
        return "needed"
    return "with the spare ones" if prediction.num_replicas == answer.replicas else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if isfinite(seconds) else "-"


def _draw(answer: Answer, file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    shown = [prediction for prediction in answer.predictions if isfinite(prediction.p99_s)]
    numbers = [prediction.num_replicas for prediction in shown]
    axes.plot(numbers, [prediction.p99_s * 1e3 for prediction in shown], "o-", label="p99")
    axes.plot(numbers, [prediction.p50_s * 1e3 for prediction in shown], "o-", label="p50")
    axes.axhline(answer.question.p99_ms, color="tab:red", linewidth=1, label="target")
    axes.set(xlabel=f"replicas, {answer.question.rate:g} texts/s together", ylabel="latency, ms")
    axes.set_xticks(numbers)
    axes.grid(visible=True, alpha=0.3)
    axes.set_ylim(bottom=0.0)
    axes.legend()
    figure.savefig(file)
