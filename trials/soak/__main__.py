"""`make soak`: the real engine at half of its capacity for twenty minutes, with cancellations and reloads.

    python -m trials.soak --minutes 20

The capacity is measured at the start of the same run.  Held: no call without the answer it should have, books that
balance on every page, memory that does not grow (in a run of ten minutes or more, after eight reloads).  Figures, and a
JSON line.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from model.bundle import default_bundle_dir
from tests.fakes.books import Watch, watching
from tests.fakes.load import Load, closed_loop_rate, offer
from tests.fakes.load_process import Source
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start
from trials.long_runs import after_warm_up, memory_figures, verdict

CAPACITY_S = 30.0
FLAT_MIB_PER_HOUR = 12.0  # the slope's lower end must be below: 4 MiB in 20 minutes
JUDGED_MINUTES = 10.0  # from which on memory is judged
HEAP_RELOADS = 8  # after so many the scheduler process' heap has found its size, and memory is judged
CANCELLED = 0.05  # of the calls
TIMEOUT_S = 30.0
SENTENCES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloads:
    """How versions of the model follow each other while the load goes on."""

    repository: Path
    name: str
    period_s: float

    def publish(self, number: int) -> None:
        """Copy the en-de bundle as version NUMBER; the one before the last goes."""
        target = self.repository / self.name / f"{number}.0.0"
        draft = Path(shutil.copytree(default_bundle_dir(), target.with_name(f".{number}")))
        manifest = draft / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": target.name}))
        draft.rename(target)
        shutil.rmtree(self.repository / self.name / f"{number - 2}.0.0", ignore_errors=True)

    async def keep_on(self, server: ServerProcess, times: list[float]) -> None:
        """Publish a version and tell the server, again and again."""
        while True:
            await asyncio.sleep(self.period_s)
            await asyncio.to_thread(self.publish, len(times) + 2)
            server.process.send_signal(signal.SIGHUP)
            times.append(time.monotonic())


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m trials.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--share", type=float, default=0.5, help="of the capacity; default 0.5")
    parser.add_argument("--reload-minutes", type=float, default=1.0, help="between two reloads; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


async def run(options: argparse.Namespace, server: ServerProcess, reloads: Reloads | None, scratch: Path) -> Any:
    """Offer the load and return its figures."""
    texts = tuple(own_sentences(SENTENCES, seed=options.seed))
    capacity = await closed_loop_rate(server.address, texts, seconds=CAPACITY_S, concurrency=96)
    print(
        f"capacity {capacity:.0f} texts/s; {options.share:.0%} of it for {options.minutes:g} minutes", file=sys.stderr
    )
    source = Source(
        phases=((options.share * capacity, options.minutes * 60),),
        texts=texts,
        beam_size=None,
        timeout_s=TIMEOUT_S,
        cancel_share=CANCELLED,
        cancel_within_s=0.2,
        num_channels=4,
    )
    reloaded: list[float] = []
    reloading = asyncio.create_task(reloads.keep_on(server, reloaded)) if reloads else None
    with watching(server, period_s=1.0) as watch:
        load = await offer(server.address, source, directory=scratch, seed=options.seed)
        if reloading is not None:
            reloading.cancel()
        await asyncio.sleep(2.0)  # the last pages
    return _figures(options, capacity, load, watch, len(reloaded), server)


def _figures(
    options: argparse.Namespace, capacity: float, load: Load, watch: Watch, num_reloads: int, server: ServerProcess
) -> dict[str, Any]:
    moments = after_warm_up(watch, _warm_up_share(options))
    return {
        "minutes": options.minutes,
        "warm_up_share": round(_warm_up_share(options), 2),
        "capacity_texts_per_s": round(capacity, 1),
        "offered_texts_per_s": round(options.share * capacity, 1),
        "share": options.share,
        "calls": len(load.records),
        "codes": load.codes,
        "lost_or_failed": sum(count for code, count in load.codes.items() if code not in ("OK", "CANCELLED")),
        "p50_ms": round(load.of("OK").latency(0.5) * 1e3, 1),
        "p99_ms": round(load.of("OK").latency(0.99) * 1e3, 1),
        "p99_ms_by_minute": _by_minute(load),
        "reloads": num_reloads,
        "versions_loaded": server.metric("dragoman_model_reload_total", result="loaded"),
        "versions_refused": server.metric("dragoman_model_reload_total", result="refused"),
        "engine_restarts": server.metric("dragoman_engine_restarts_total"),
        "pages": len(watch.moments),
        "pages_out_of_balance": len(watch.imbalances),
        "pages_missing": len(watch.failures),
        "front": memory_figures(moments, lambda moment: moment.front_bytes),
        "engines": memory_figures(moments, lambda moment: moment.engine_bytes),
        "machine": f"{platform.machine()}, {psutil.cpu_count()} CPUs, Python {platform.python_version()}",
    }


def _warm_up_share(options: argparse.Namespace) -> float:
    """The share of the time before memory counts: 0.2, or until the heap has seen enough reloads; at most 0.6."""
    return min(0.6, max(0.2, float(HEAP_RELOADS * options.reload_minutes / options.minutes)))


def _by_minute(load: Load) -> list[float]:
    answered = [record for record in load.records if record.code == "OK"]
    began = min(record.intended for record in answered)
    minutes: dict[int, list[float]] = {}
    for record in answered:
        minutes.setdefault(int((record.intended - began) / 60), []).append(record.done - record.intended)
    return [round(float(np.quantile(waits, 0.99)) * 1e3, 1) for _, waits in sorted(minutes.items())]


def facts(figures: dict[str, Any]) -> dict[str, bool]:
    """Return what these figures would break, and whether they do."""
    is_long = figures["minutes"] >= JUDGED_MINUTES and figures["warm_up_share"] < 0.6
    return {
        f"{figures['lost_or_failed']} calls lost or failed": figures["lost_or_failed"] > 0,
        "versions were refused": figures["versions_refused"] > 0,
        "fewer versions than reloads": figures["versions_loaded"] < figures["reloads"],
        "the books do not balance": figures["pages_out_of_balance"] > 0,
        "the core grows": is_long and figures["front"]["slope_low"] > FLAT_MIB_PER_HOUR,
        "engines grow": is_long and figures["engines"]["slope_low"] > FLAT_MIB_PER_HOUR,
    }


def _start(options: argparse.Namespace, directory: Path) -> tuple[ServerProcess, Reloads | None]:
    """Start the server with en-de, from a repository where it is to reload."""
    variables = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner"}
    if not options.reload_minutes:
        return start(default_bundle_dir(), directory, **variables), None
    name = json.loads((default_bundle_dir() / "manifest.json").read_text())["name"]
    reloads = Reloads(repository=directory / "models", name=name, period_s=60 * options.reload_minutes)
    (reloads.repository / name).mkdir(parents=True)
    reloads.publish(1)
    variables["DRAGOMAN_MODELS__DIRECTORY"] = str(reloads.repository)
    return start(default_bundle_dir(), directory, **variables), reloads


def main() -> int:
    """Return 0 if everything held, else 1."""
    options = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        server, reloads = _start(options, Path(scratch))
        try:
            figures = asyncio.run(run(options, server, reloads, Path(scratch)))
        finally:
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
    return verdict("Soak", figures, facts(figures))


if __name__ == "__main__":
    sys.exit(main())
