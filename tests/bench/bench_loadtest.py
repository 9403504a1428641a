"""Does the load test measure right?  Against a server whose capacity is known, 100 texts a second.

python tests/bench/bench_loadtest.py [--locust PYTHON] [--rounds 3] [--duration 25]

`dragoman loadtest --find-p99` looks for the capacity, with other arrivals each time, and must find it within 5 %.
With the Python of an environment that has Locust, such as .venv-docs/bin/python of `make try-docs`, both send the same
calls at 80 % of the capacity, and must agree on p50 and p99 within 10 %.  The server's fake engine
keeps to a clock, which a busy machine cannot: then both fail.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes import timed_runner
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ROOT, ServerProcess, start

CAPACITY = 100.0  # texts a second: 10 rows, steps of 10 ms, and 10 of them for TEXT
TEXT = "abcdefgh"
PACED = {
    "DRAGOMAN_ENGINE__RUNNER_FACTORY": timed_runner.FACTORY,
    "DRAGOMAN_ENGINE__MAX_ROWS": "10",
    "PACE_STEP_S": "0.01",
}
# Of M/D/10 at 97 % for half a minute, which is as near to the capacity as the search can be expected to come.
TARGET_MS = 600.0
SHARE = 0.8
WARM_UP_S = 5.0
FOUND_WITHIN, AGREE_WITHIN = 0.05, 0.10
LOCUST = ROOT / "deploy" / "locust" / "locustfile.py"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of answered calls, in ms."""

    p50: float
    p99: float
    calls: int

    def __str__(self) -> str:
        return f"p50 {self.p50:.0f} ms, p99 {self.p99:.0f} ms of {self.calls} calls"

    def differs_from(self, other: "Percentiles") -> float:
        """The larger of both differences, as a part."""
        return max(abs(self.p50 / other.p50 - 1), abs(self.p99 / other.p99 - 1))


@contextmanager
def paced_server(scratch: Path) -> Iterator[ServerProcess]:
    """One whose capacity is known."""
    server = start(write_echo_bundle(scratch / "bundle"), scratch, **PACED)
    try:
        yield server
    finally:
        server.terminate()
        server.wait()


def loadtest(server: ServerProcess, scratch: Path, *options: str) -> dict[str, Any]:
    """The JSON report of `dragoman loadtest`; its CSV is beside it."""
    report, texts = scratch / "report.json", scratch / "texts"
    texts.write_text(TEXT + "\n")
    command = [sys.executable, "-m", "service", "loadtest", "--server", server.address, "--texts", str(texts)]
    reports = ["--report", str(report), "--report", str(report.with_suffix(".csv"))]
    _run([*command, "--beam-size", "1", *reports, *options])
    return dict(json.loads(report.read_text()))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def find(server: ServerProcess, scratch: Path, duration_s: float, seed: int) -> float:
    """The rate that `--find-p99` comes to, every stage on standard error."""
    report = loadtest(
        server,
        scratch,
        *("--find-p99", f"{TARGET_MS:g}", "--first-rate", f"{0.8 * CAPACITY:g}"),
        *("--duration", f"{duration_s:g}", "--warm-up", f"{WARM_UP_S:g}", "--seed", str(seed)),
    )
    for stage in report["stages"]:
        _say(f"  {stage['name']}: p99 {stage['latency_ms'].get('p99', float('nan')):.0f} ms, {stage['codes']}")
    for warning in report["warnings"]:
        _say(f"  {warning}")
    words = str(report["headline"]).split()
    return float(words[0]) if words[0] != "no" else 0.0


def ours(server: ServerProcess, scratch: Path, duration_s: float) -> Percentiles:
    """At a fixed rate, by `dragoman loadtest`."""
    rate = ("--rate", f"{SHARE * CAPACITY:g}", "--duration", f"{duration_s:g}", "--warm-up", "0")  # Locust cuts none
    report = loadtest(server, scratch, *rate)
    (stage,) = report["stages"]
    return Percentiles(stage["latency_ms"]["p50"], stage["latency_ms"]["p99"], stage["calls"])


def locusts(python: Path, server: ServerProcess, scratch: Path, duration_s: float) -> Percentiles:
    """The same calls by Locust, at the times of the report that the last call of `ours` has left."""
    out = _run(
        [
            *(str(python), "-m", "locust", "-f", str(LOCUST), "--headless", "--json", "--only-summary"),
            *("--host", server.address, "--users", "1", "--beam", "1", "--text-file", str(scratch / "texts")),
            *("--due-times", str(scratch / "report.csv"), "--run-time", f"{duration_s + 3:g}s", "--loglevel", "ERROR"),
        ]
    )
    (stats,) = json.loads(out)
    times = stats["response_times"]
    return Percentiles(quantile(times, 0.5), quantile(times, 0.99), stats["num_requests"])


def compare(
    python: Path, server: ServerProcess, scratch: Path, rounds: int, duration_s: float
) -> tuple[Percentiles, Percentiles]:
    """Both in turn, several times: a machine's bad moment then spoils one round of one of them."""
    of_ours, of_locust = [], []
    for number in range(1, rounds + 1):
        of_ours.append(ours(server, scratch, duration_s))
        of_locust.append(locusts(python, server, scratch, duration_s))
        _say(f"  round {number}: {of_ours[-1]}, Locust {of_locust[-1]}")
    return middle(of_ours), middle(of_locust)


def middle(rounds: Sequence[Percentiles]) -> Percentiles:
    """Medians, and all calls together."""
    return Percentiles(
        p50=median(seen.p50 for seen in rounds),
        p99=median(seen.p99 for seen in rounds),
        calls=sum(seen.calls for seen in rounds),
    )


def quantile(times: dict[str, int], share: float) -> float:
    """Of Locust's counts by milliseconds, which it rounds to two digits."""
    left = share * sum(times.values())
    for ms, count in sorted((float(ms), count) for ms, count in times.items()):
        left -= count
        if left <= 0:
            return ms
    return float("nan")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3, help="of the search; 0: none")
    parser.add_argument("--duration", type=float, default=25.0, help="seconds of a stage, 5 of warm-up included")
    parser.add_argument("--locust", type=Path, help="python of an environment with Locust")
    parser.add_argument("--compare-rounds", type=int, default=5, help="of both; the medians are compared")
    parser.add_argument("--compare-duration", type=float, default=20.0, help="seconds of one")
    return parser.parse_args()


def main() -> int:
    """0 if the load test measures right."""
    options, wrong = arguments(), []
    figures: dict[str, Any] = {"capacity": CAPACITY, "found": []}
    with tempfile.TemporaryDirectory() as directory, paced_server(Path(directory)) as server:
        scratch = Path(directory)
        for seed in range(1, options.rounds + 1):
            found = find(server, scratch, options.duration, seed)
            print(f"search {seed}: {found:.1f} of {CAPACITY:.0f} texts/s ({found / CAPACITY:.1%})", flush=True)
            figures["found"].append(found)
            if abs(found / CAPACITY - 1) > FOUND_WITHIN:
                wrong.append(f"search {seed} is off by more than {FOUND_WITHIN:.0%}")
        if options.locust:
            pair = compare(options.locust, server, scratch, options.compare_rounds, options.compare_duration)
            for name, seen in zip(("dragoman loadtest", "locust"), pair, strict=True):
                print(f"{name}: {seen}")
            figures["loadtest_ms"], figures["locust_ms"] = ([seen.p50, seen.p99] for seen in pair)
            if pair[0].differs_from(pair[1]) > AGREE_WITHIN:
                wrong.append(f"they differ by more than {AGREE_WITHIN:.0%}")
    print("\n".join(f"WRONG: {line}" for line in wrong) or "right")
    print(json.dumps({**figures, "wrong": wrong}))
    return 1 if wrong else 0


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
