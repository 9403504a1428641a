"""CPU time of a server that has nothing to do: front process and engines, en-de alone.

python tests/bench/bench_idle.py [--engines 1 2 8] [--seconds 20]
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import default_bundle_dir
from tests.fakes.server_process import start

SETTLE_S = 3.0  # after the start, memory is returned and connections end


def idle_percent(num_engines: int, seconds: float) -> tuple[float, float]:
    """Return the per cent of one CPU that the front process, and all engines together, take."""
    with tempfile.TemporaryDirectory() as scratch:
        server = start(
            default_bundle_dir(),
            Path(scratch),
            DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.process:create_runner",
            DRAGOMAN_ENGINE__NUM_ENGINES=str(num_engines),
        )
        try:
            front = psutil.Process(server.process.pid)
            engines = front.children()
            time.sleep(SETTLE_S)
            before, began = [cpu_s(front), sum(map(cpu_s, engines))], time.monotonic()
            time.sleep(seconds)
            after, elapsed = [cpu_s(front), sum(map(cpu_s, engines))], time.monotonic() - began
        finally:
            server.terminate()
            server.wait()
    front_percent, engine_percent = (100 * (new - old) / elapsed for old, new in zip(before, after, strict=True))
    return front_percent, engine_percent


def cpu_s(process: psutil.Process) -> float:
    """Return the seconds of CPU time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    rows = []
    print("engines  front %  engines %")
    for count in arguments.engines:
        front, engines = idle_percent(count, arguments.seconds)
        rows.append({"engines": count, "front_percent": round(front, 2), "engines_percent": round(engines, 2)})
        print(f"{count:7}  {front:7.2f}  {engines:9.2f}")
    print(json.dumps({"bench": "idle", "rows": rows}))
