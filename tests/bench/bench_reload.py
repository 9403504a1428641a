"""en-de swapped for a copy of itself, again and again, under load: time, memory, calls that failed.

python tests/bench/bench_reload.py
"""

import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import MANIFEST_NAME, Bundle, default_bundle_dir
from service.client import Client
from service.client.channel import ClientConfig
from service.client.retry import RetryPolicy
from service.errors import DragomanError
from tests.fakes.server_process import ServerProcess, start

SWAPS = 20
CALLERS = 2
TEXT = "The children are playing in the garden."


def publish(repository: Path, version: int) -> None:
    """A copy of en-de under another version, in one rename."""
    draft = repository / "en-de" / f".{version}"
    shutil.copytree(default_bundle_dir(), draft)
    manifest = replace(Bundle.load(draft, verify=False).manifest, version=str(version))
    (draft / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    draft.rename(repository / "en-de" / str(version))


def resident_mb(server: ServerProcess) -> tuple[float, float]:
    """Of the front process, and of it with its engine; pages that others have too are left out (USS)."""
    front = psutil.Process(server.process.pid)
    sizes = [float(process.memory_full_info().uss) / 1e6 for process in (front, *front.children())]
    return sizes[0], sum(sizes)


def wait_for(server: ServerProcess, retired: int) -> None:
    """Return when so many versions have left, with their engines."""
    while server.metric("dragoman_model_reload_total", result="retired") < retired or len(server.engine_pids()) != 1:
        time.sleep(0.02)


class Callers:
    """Threads that translate one text after another, and try nothing twice."""

    def __init__(self, address: str) -> None:
        self.answered = self.failed = 0
        self._is_over = False
        self._threads = [threading.Thread(target=self._call, args=(address,)) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def _call(self, address: str) -> None:
        with Client(address, ClientConfig(retry=RetryPolicy(max_attempts=1))) as client:
            while not self._is_over:
                try:
                    client.translate([TEXT])
                    self.answered += 1
                except DragomanError:
                    self.failed += 1


def measure(scratch: Path) -> dict[str, object]:
    repository = scratch / "models"
    publish(repository, 0)
    server = start(
        default_bundle_dir(),
        scratch,
        DRAGOMAN_MODELS__DIRECTORY=str(repository),
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.cpu.runner:create_runner",
    )
    callers = Callers(server.address)
    seconds, memory = [], []
    for version in range(1, SWAPS + 1):
        publish(repository, version)
        began = time.perf_counter()
        server.process.send_signal(signal.SIGHUP)
        wait_for(server, version)
        seconds.append(time.perf_counter() - began)
        memory.append(resident_mb(server))
    callers.end()
    server.terminate()
    server.wait()
    return {
        "bench": "reload",
        "swaps": SWAPS,
        "median_s": round(median(seconds), 2),
        "answered": callers.answered,
        "failed": callers.failed,
        "front_mb": [round(front) for front, _ in memory],
        "all_mb": [round(whole) for _, whole in memory],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory))
    print(f"{SWAPS} swaps under load, each {found['median_s']} s (median) from the signal to the end of the old one")
    print(f"calls: {found['answered']} answered, {found['failed']} failed")
    print(f"memory after each swap, front process alone: {found['front_mb']} MB; with its engine: {found['all_mb']} MB")
    print(json.dumps(found))
