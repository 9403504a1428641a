"""`dragoman plan` against reality: p99 predicted and measured for 1, 2 and 4 servers of known pace.

One server is measured with `dragoman loadtest`; from that report alone the p99 of several behind a least-request
balancer is predicted, and then they are loaded.  The servers are real, their model only waits: about 25 texts a second
each, texts of 6 - 14 steps, steps of 20 ms and 2 ms for each sentence in them.  Where calls were sent late, the machine
was busy with something else, and what was measured is not the servers' latency.

python tests/bench/bench_plan.py [--replicas 1 2 4] [--utilization 0.7] [--seconds 60] [--stage-seconds 60]
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc.aio
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from protos import translation_pb2 as pb
from protos import translation_pb2_grpc as pb_grpc
from service.arrivals import Seconds
from service.loadtest.schedule import Stage, due_times
from service.planning.fit import Fit, fit
from service.planning.measured import read
from service.planning.search import Demand, Planner
from tests.fakes import timed_runner
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ServerProcess, start

PACE = {"PACE_STEP_S": "0.02", "PACE_ROW_S": "0.002", "DRAGOMAN_ENGINE__MAX_ROWS": "10"}
RATES = (2.5, 7.5, 12.5, 17.5, 21, 30)  # calls a second of the measured stages; the last one is beyond the capacity
WARM_UP_S = 5.0
TIMEOUT_S = 60.0


def texts(number: int = 500) -> list[str]:
    """Of 6 - 14 steps: a character is a step, and so are the word mark and the end."""
    draw = random.Random(5)
    return ["abcdefghijklmnop"[: draw.randint(4, 12)] for _ in range(number)]


@contextmanager
def servers(number: int, bundle: Path, scratch: Path) -> Iterator[list[ServerProcess]]:
    """So many, all serving."""
    with ExitStack() as stack:
        running = []
        for _ in range(number):
            directory = Path(tempfile.mkdtemp(dir=scratch))
            settings = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": timed_runner.FACTORY, **PACE}
            server = start(bundle, directory, **settings)
            stack.callback(server.process.wait)
            stack.callback(server.process.kill)
            running.append(server)
        yield running


def measure(server: ServerProcess, scratch: Path, stage_s: float) -> Fit:
    """The replica that `dragoman loadtest` sees."""
    lines, report = scratch / "texts", scratch / "one.json"
    lines.write_text("\n".join(texts()) + "\n")
    rates = [word for rate in RATES for word in ("--rate", str(rate))]
    command = [sys.executable, "-m", "service", "loadtest", "--server", server.address, *rates, "--beam-size", "1"]
    command += ["--duration", f"{stage_s + WARM_UP_S:g}", "--warm-up", f"{WARM_UP_S:g}", "--texts", str(lines)]
    subprocess.run([*command, "--report", str(report)], check=True, timeout=60 + len(RATES) * (stage_s + TIMEOUT_S))
    return fit(read([("one.json", report.read_text())]))


class LeastRequest:
    """Sends each call to the server with the fewest of its calls outstanding."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._channels = [grpc.aio.insecure_channel(address) for address in addresses]
        self._stubs = [pb_grpc.TranslationServiceStub(channel) for channel in self._channels]
        self._outstanding = [0] * len(addresses)
        self.late_s: list[float] = []  # by which each call was sent

    async def load(self, due: Seconds) -> list[float]:
        """Seconds from when each call was due to its answer; NaN if there was none."""
        await asyncio.gather(*(asyncio.wait_for(channel.channel_ready(), TIMEOUT_S) for channel in self._channels))
        requests = [pb.TranslateRequest(texts=[text], options=pb.TranslateOptions(beam_size=1)) for text in texts()]
        calls = []
        began = time.monotonic()
        for number, at in enumerate(due.tolist()):
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            self.late_s.append(time.monotonic() - began - at)
            calls.append(asyncio.create_task(self._call(requests[number % len(requests)], began + at)))
        seconds = await asyncio.gather(*calls)
        await asyncio.gather(*(channel.close() for channel in self._channels))
        return seconds

    async def _call(self, request: pb.TranslateRequest, due: float) -> float:
        chosen = self._outstanding.index(min(self._outstanding))
        self._outstanding[chosen] += 1
        try:
            await self._stubs[chosen].Translate(request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            print(f"a call failed: {error.code().name}")
            return float("nan")
        finally:
            self._outstanding[chosen] -= 1
        return time.monotonic() - due


def loaded(addresses: Sequence[str], rate: float, seconds: float) -> tuple[Seconds, float]:
    """Latency of the calls after the warm-up, and the p99 of how late they were sent."""
    due = due_times(Stage(rate=rate, duration_s=WARM_UP_S + seconds), "poisson", seed=11)

    async def run() -> tuple[list[float], list[float]]:
        balancer = LeastRequest(addresses)
        return await balancer.load(due), balancer.late_s

    latency_s, late_s = (np.array(values)[due >= WARM_UP_S] for values in asyncio.run(run()))
    return latency_s[~np.isnan(latency_s)], float(np.quantile(late_s, 0.99))


def compare(fitted: Fit, number: int, arguments: argparse.Namespace, bundle: Path, scratch: Path) -> dict[str, float]:
    """Predicted and measured, in milliseconds."""
    rate = arguments.utilization * number * fitted.replica.capacity
    prediction = Planner(fitted.replica, Demand(rate=rate, p99_s=1.0)).predict(number)
    with servers(number, bundle, scratch) as running:
        latency_s, late_s = loaded([server.address for server in running], rate, arguments.seconds)
    p50_ms, p99_ms = (np.quantile(latency_s, [0.5, 0.99]) * 1e3).tolist()
    return {
        "replicas": number,
        "rate": round(rate, 1),
        "calls": len(latency_s),
        "late_p99_ms": round(late_s * 1e3, 1),
        "predicted_p50_ms": round(prediction.p50_s * 1e3, 1),
        "measured_p50_ms": round(p50_ms, 1),
        "predicted_p99_ms": round(prediction.p99_s * 1e3, 1),
        "measured_p99_ms": round(p99_ms, 1),
        "p99_error": round(prediction.p99_s * 1e3 / p99_ms - 1, 3),
    }


def main() -> None:
    """Print a row for each number of replicas, and all as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--utilization", type=float, default=0.7)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load on each number of replicas")
    parser.add_argument("--stage-seconds", type=float, default=60.0, help="of each stage that measures one replica")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        bundle = write_echo_bundle(scratch / "echo")
        with servers(1, bundle, scratch) as (server,):
            fitted = measure(server, scratch, arguments.stage_seconds)
        replica = fitted.replica
        print(f"one replica: {replica.capacity:.1f} texts/s, {replica.rows} rows, growth {replica.growth:.3f}")
        for stage in fitted.stages:
            print(f"  {stage.stage.name}: p99 {stage.stage.latency_s[0.99] * 1e3:.0f} ms, model {stage.p99_error:+.1%}")
        rows = [compare(fitted, number, arguments, bundle, scratch) for number in arguments.replicas]
    print("  ".join(rows[0]))
    for row in rows:
        print("  ".join(f"{value:>{len(name)}g}" for name, value in row.items()))
    print(json.dumps({"bench": "plan", "capacity": replica.capacity, "rows": rows}))


if __name__ == "__main__":
    main()
