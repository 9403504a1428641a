"""Fifty models in a memory that holds half of them: latency of warm and of cold models, and the memory itself.

    python bench/bench_many_models.py --seconds 600

Starts a server with copies of an included int8 model under other names and calls them in an open loop: arrivals are a
Poisson process, and the model of each call is drawn from a Zipf distribution over the names.  Latency counts from the
moment at which a call was meant to begin.  A call is cold if its model was loaded while the call waited.  Memory is
that of the server, its engines and edges, looked at from outside twice a second: the proportional set size, which
the setting limits, and the sum of resident sizes, which counts what processes share once for each of them.
"""

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from model.bundle import default_bundle_dir
from service.client import AsyncClient
from service.engine.worker import create_runner
from service.errors import DragomanError
from tests.conftest import ENGLISH
from tests.fakes.server_process import ServerProcess, start

LOOK_S = 0.5


class Answered(NamedTuple):
    """A call that has ended."""

    model: str
    began: float  # when it was meant to begin, as Unix time
    ended: float
    code: str  # name of the error; empty: none


class Memory(NamedTuple):
    """What the processes of the server take, in MB (2**20 bytes)."""

    proportional: float
    resident: float


def main(
    seconds: Annotated[float, typer.Option(min=1.0, help="Of load.")] = 60.0,
    models: Annotated[int, typer.Option(min=2)] = 50,
    rate: Annotated[float, typer.Option(min=0.1, help="Calls a second.")] = 4.0,
    exponent: Annotated[float, typer.Option(help="Of the Zipf distribution.")] = 1.0,
    max_memory_mb: Annotated[int, typer.Option(help="The server's ceiling.")] = 2_000,
    bundle: Annotated[Path | None, typer.Option(help="To copy.  [default: en-de]")] = None,
    edges: Annotated[int, typer.Option(min=1)] = 1,
    seed: int = 1,
) -> None:
    """Load many models through a small memory."""
    names = [f"m{number:02}" for number in range(1, models + 1)]
    settings = {
        "DRAGOMAN_MODELS__MAX_MEMORY_MB": str(max_memory_mb),
        "DRAGOMAN_LISTEN__EDGES": str(edges),
        "DRAGOMAN_ENGINE__NUM_ENGINES": "",
        "DRAGOMAN_ENGINE__RUNNER_FACTORY": f"{create_runner.__module__}:{create_runner.__name__}",
    }
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory) / "models"
        for name in names:
            copy_bundle(bundle or default_bundle_dir(), repository / name / "1", name)
        began = time.monotonic()
        server = start(None, Path(directory), "--models", str(repository), **settings)
        ready_s = time.monotonic() - began
        try:
            answered, memory = asyncio.run(load(server, names, seconds, rate, exponent, seed))
            loads = loads_of(server.log_text())
        finally:
            server.terminate()
            server.wait()
    report(answered, memory, loads, ready_s, max_memory_mb)


def copy_bundle(source: Path, target: Path, name: str) -> None:
    """Write a copy of a bundle under another name, without the weights that only an export needs."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors", "*.png", "*.md", "*.csv"))
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps({**manifest, "name": name, "version": target.name}))


async def load(
    server: ServerProcess, names: list[str], seconds: float, rate: float, exponent: float, seed: int
) -> tuple[list[Answered], list[Memory]]:
    """Return every call and every look at the memory."""
    draw, answered, memory = random.Random(seed), list[Answered](), list[Memory]()
    weights = list(accumulate(1 / (place + 1) ** exponent for place in range(len(names))))

    async def call(client: AsyncClient, model: str, text: str, began: float) -> None:
        code = ""
        try:
            await client.translate([text], model=model, timeout_s=30.0)
        except DragomanError as error:
            code = f"{type(error).__name__}: {error}"
        answered.append(Answered(model, began, time.time(), code))

    async def watch() -> None:
        while True:
            memory.append(await asyncio.to_thread(memory_of, server))
            await asyncio.sleep(LOOK_S)

    watching = asyncio.create_task(watch())
    async with AsyncClient(server.address) as client, asyncio.TaskGroup() as calls:
        begin, at_s = time.time(), 0.0
        while (at_s := at_s + draw.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, begin + at_s - time.time()))
            (model,) = draw.choices(names, cum_weights=weights)
            calls.create_task(call(client, model, draw.choice(ENGLISH), begin + at_s))
    watching.cancel()
    return answered, memory


def memory_of(server: ServerProcess) -> Memory:
    """Return what the server and its children take now."""
    root = psutil.Process(server.process.pid)
    total = {"Pss:": 0, "Rss:": 0}  # in kB
    for process in (root, *root.children()):
        with suppress(OSError):  # it has just ended; the whole of smaps would hold the engines up
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                name, value, *_ = line.split()
                if name in total:
                    total[name] += int(value)
    return Memory(total["Pss:"] / 1024, total["Rss:"] / 1024)


def loads_of(log: str) -> list[tuple[str, float]]:
    """Return each load that the server has logged: of which model, and its end as Unix time."""
    lines = [json.loads(line) for line in log.splitlines() if '"model_started"' in line]
    return [(line["model"], datetime.fromisoformat(line["timestamp"]).timestamp()) for line in lines]


def report(
    answered: list[Answered], memory: list[Memory], loads: list[tuple[str, float]], ready_s: float, limit_mb: int
) -> None:
    cold = {one for one in answered for model, at in loads if model == one.model and one.began <= at <= one.ended}
    table, rows = Table("calls", "number", "p50 ms", "p95 ms", "p99 ms", "longest ms"), {}
    for kind, calls in (("warm", [one for one in answered if one not in cold]), ("cold", list(cold))):
        times = [1e3 * (one.ended - one.began) for one in calls if not one.code]
        row = [len(calls), *(round(float(np.percentile(times or [0.0], share))) for share in (50, 95, 99, 100))]
        rows[kind] = dict(zip(("calls", "p50_ms", "p95_ms", "p99_ms", "max_ms"), row, strict=True))
        table.add_row(kind, *map(str, row))
    errors = Counter(one.code for one in answered if one.code)
    facts = {
        "models_called": len({one.model for one in answered}),
        "loads": len(loads),
        "errors": dict(errors),
        "ready_s": round(ready_s, 2),
        "max_memory_mb": limit_mb,
        "highest_pss_mb": round(max(look.proportional for look in memory)),
        "mean_pss_mb": round(float(np.mean([look.proportional for look in memory]))),
        "highest_sum_of_rss_mb": round(max(look.resident for look in memory)),
        "looks": len(memory),
    }
    console = Console(width=120)
    console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {value}")
    print(json.dumps({**rows, **facts, "machine": machine.describe(psutil.cpu_count() or 1)}))


if __name__ == "__main__":
    typer.run(main)
