"""The record of a training run: a CSV with a line per validation, and the same as a picture."""

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What is known at one validation."""

    update: int
    epoch: int
    minutes: float
    target_tokens: int  # trained on so far
    learning_rate: float
    train_loss: float  # label-smoothed, nats per token, mean since the last validation
    dev_loss: float  # negative log-likelihood, nats per token
    dev_bleu: float  # greedy search
    dev_chrf: float


class CurveLog:
    """Appends points to RUN/curve.csv and redraws RUN/curve.png."""

    def __init__(self, run: Path) -> None:
        self._csv, self._png = run / "curve.csv", run / "curve.png"

    def append(self, point: CurvePoint) -> None:
        """Record one validation."""
        self._write([*self._rows(), {name: str(value) for name, value in asdict(point).items()}])
        self.draw()

    def truncate(self, update: int) -> None:
        """Forget points after `update`: a resumed run makes them again."""
        self._write([row for row in self._rows() if int(row["update"]) <= update])

    def points(self) -> list[dict[str, float]]:
        """All points so far."""
        return [{name: float(value) for name, value in row.items()} for row in self._rows()]

    def draw(self) -> None:
        """Loss on the left, BLEU and chrF on the right, over millions of target tokens."""
        points = self.points()
        tokens = [point["target_tokens"] / 1e6 for point in points]
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        loss, quality = figure.subplots(1, 2)
        for name, label in (("train_loss", "training (label-smoothed)"), ("dev_loss", "validation")):
            loss.plot(tokens, [point[name] for point in points], marker=".", label=label)
        for name, label in (("dev_bleu", "BLEU"), ("dev_chrf", "chrF")):
            quality.plot(tokens, [point[name] for point in points], marker=".", label=label)
        loss.set(xlabel="million target tokens", ylabel="nats per token", title="Loss")
        quality.set(xlabel="million target tokens", title="Validation, greedy search")
        for axes in (loss, quality):
            axes.grid(alpha=0.3)
            axes.legend()
        figure.savefig(self._png, dpi=110)

    def _rows(self) -> list[dict[str, str]]:
        if not self._csv.exists():
            return []
        with self._csv.open(newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def _write(self, rows: list[dict[str, str]]) -> None:
        partial = self._csv.with_name(f".{self._csv.name}.partial")  # a kill leaves the old curve
        with partial.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, [entry.name for entry in fields(CurvePoint)])
            writer.writeheader()
            writer.writerows(rows)
        partial.replace(self._csv)
