"""Runs the stages of the capacity card on a server with its default configuration, and writes the card."""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
from rich.console import Console

from model.bundle import Bundle, default_bundle_dir
from service.threads import available_threads
from tests.bench.capacity.card import Facts, Memory, card, linked
from tests.bench.capacity.stages import Search, Sender, measured
from tests.bench.race import machine
from tests.fakes.default_server import start_default
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess

COMMAND = "python tests/bench/bench_capacity.py --write docs/capacity.md"
REFERENCE_MS = 500.0
TARGETS_MS = (250.0, REFERENCE_MS, 1_000.0)  # of the first search; of the others the reference alone
SEARCHES = (
    Search(beam_size=4, use_shortlist=False),  # the bundle's own
    Search(beam_size=4, use_shortlist=True),
    Search(beam_size=1, use_shortlist=False),
    Search(beam_size=1, use_shortlist=True),
)
SENTENCES = 2_000
STARTS = 3


@contextmanager
def serving(directory: Path, start_s: list[float]) -> Iterator[ServerProcess]:
    """A server of its own; how long its start took is added to `start_s`."""
    began = time.perf_counter()
    server = start_default(directory)
    start_s.append(round(time.perf_counter() - began, 2))
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def memory(server: ServerProcess) -> Memory:
    """What the server's processes have resident."""
    front = psutil.Process(server.process.pid)
    engines = sum(child.memory_info().rss for child in front.children())
    return Memory(front=front.memory_info().rss / 2**20, engines=engines / 2**20)


def measure(stage_s: float, scratch: Path) -> Facts:
    """Everything on the card."""
    began, about = time.monotonic(), machine.describe(available_threads())
    sentences = own_sentences(SENTENCES)
    start_s: list[float] = []
    texts = scratch / "texts"
    texts.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    for _ in range(STARTS - 1):
        with serving(scratch, start_s):
            pass
    with serving(scratch, start_s) as server:
        at_start = memory(server)
        sender = Sender(address=server.address, texts=texts, stage_s=stage_s, console=Console(stderr=True, width=140))
        capacities = [
            measured(sender, search, TARGETS_MS if search == SEARCHES[0] else [REFERENCE_MS], REFERENCE_MS)
            for search in SEARCHES
        ]
        after, num_engines = memory(server), len(server.engine_pids())
    return Facts(
        command=COMMAND if stage_s == default_seconds() else f"{COMMAND} --seconds {stage_s:g}",
        date=datetime.now(UTC).date().isoformat(),
        minutes=(time.monotonic() - began) / 60,
        model=model_name(),
        machine=about,
        ram_gib=psutil.virtual_memory().total / 2**30,
        num_engines=num_engines,
        num_threads=max(1, available_threads() // num_engines),
        num_texts=len(sentences),
        mean_characters=fmean(map(len, sentences)),
        stage_s=stage_s,
        num_stages=sender.num_stages,
        num_warnings=len(sender.warnings),
        start_s=start_s,
        memory_at_start=at_start,
        memory_after=after,
        capacities=capacities,
        reference_ms=REFERENCE_MS,
    )


def model_name() -> str:
    """Name and version of the included English-German model."""
    manifest = Bundle.load(default_bundle_dir()).manifest
    return f"{manifest.name} {manifest.version}"


def write(page: Path, text: str) -> None:
    """The card, and a row for it in the index beside it, if there is one."""
    page.write_text(text, encoding="utf-8")
    index = page.with_name("README.md")
    if index.exists():
        index.write_text(linked(index.read_text(encoding="utf-8"), page.name), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=10.0, help="of each stage, a fifth of warm-up included")
    options.add_argument("--write", type=Path, metavar="FILE", help="where the card goes, like docs/capacity.md")
    return options


def default_seconds() -> float:
    """Of a stage."""
    return float(parser().get_default("seconds"))


def record(facts: Facts) -> dict[str, Any]:
    """For the JSON line."""
    found = asdict(facts)
    for capacity, row in zip(facts.capacities, found["capacities"], strict=True):
        row["search"] = str(capacity.search)
    return found


def main() -> None:
    """Print the card, and all as JSON."""
    arguments = parser().parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(arguments.seconds, Path(directory))
    if arguments.write:
        write(arguments.write, card(found))
    print(card(found))
    print(json.dumps({"bench": "capacity", **record(found)}))
