"""Seconds from the start of the server's process until it serves en-de alone.

python tests/bench/bench_startup.py
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import default_bundle_dir
from tests.fakes.server_process import start

RUNS = 5


def time_start(directory: Path) -> float:
    """Time one start; the server writes its ports when it serves, looked for every 10 ms."""
    began = time.perf_counter()
    server = start(
        default_bundle_dir(), directory, DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.process:create_runner"
    )
    seconds = time.perf_counter() - began
    server.terminate()
    server.wait()
    return seconds


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = sorted(time_start(Path(scratch)) for _ in range(RUNS))
    print(f"start to SERVING: {found[0]:.2f} - {found[-1]:.2f} s, median {median(found):.2f} s of {RUNS}")
    print(json.dumps({"bench": "startup", "seconds": [round(seconds, 3) for seconds in found]}))
