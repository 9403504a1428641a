"""What the translation cache gives where traffic repeats itself, and what it costs where it does not.

python bench/bench_cache.py [--calls 1000] [--sentences 2000] [--exponent 1.0] [--misses 4000] [--rounds 5]

The first table: calls of one sentence each to the included en-de with one engine, eight at a time.  How often a
sentence comes follows Zipf's law: the n-th most frequent one 1 / n ** exponent as often as the first.  Servers with and
without the cache get the same calls, each begun anew, so that the cache is empty at first.

The second: CPU time of a call in the server's own process where the FAKE engine of `bench_call.py` answers at once,
with texts that all are new (miss), and with one that is not (hit), in turns with a server without the cache.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.bench_call import CALLERS, Case, our_server
from tests.fakes.calls import Calls, calling
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start

SETTING = "DRAGOMAN_LIMITS__TRANSLATION_CACHE_MB"
SEED = 1
AT_ONCE = 8
DEADLINE_S = 60.0
_numbers = count()


def zipf(sentences: list[str], exponent: float, number: int) -> list[str]:
    """Return so many sentences, the n-th of them 1 / n ** exponent as often as the first."""
    weights = [1 / rank**exponent for rank in range(1, len(sentences) + 1)]
    return random.Random(SEED).choices(sentences, weights, k=number)


async def send(address: str, texts: list[str], at_once: int) -> tuple[float, list[float]]:
    """Return the seconds that all calls take, and those of each."""
    remaining, taken = iter(texts), list[float]()

    async def work(calls: Calls) -> None:
        for text in remaining:
            began = time.perf_counter()
            await calls.translate(text, source_language="en", target_language="de", timeout=DEADLINE_S)
            taken.append(time.perf_counter() - began)

    async with calling(address) as calls:
        await calls.translate("Hello.", source_language="en", target_language="de")
        began = time.perf_counter()
        await asyncio.gather(*(work(calls) for _ in range(at_once)))
        return time.perf_counter() - began, taken


def under_zipf(megabytes: int, texts: list[str]) -> dict[str, float]:
    """Return what a new server does with these texts."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        start(None, Path(scratch), DRAGOMAN_ENGINE__RUNNER_FACTORY="", **{SETTING: str(megabytes)}) as server,
    ):
        seconds, taken = asyncio.run(send(server.address, texts, AT_ONCE))
        hits = server.metric("dragoman_translation_cache_sentences_total", result="hit")
        num_bytes = server.metric("dragoman_translation_cache_bytes")
    taken.sort()
    return {
        "calls_per_s": len(texts) / seconds,
        "p50_ms": taken[len(taken) // 2] * 1e3,
        "p95_ms": taken[len(taken) * 19 // 20] * 1e3,
        "hits": hits / len(texts),
        "mb": num_bytes / (1 << 20),
    }


def _word(number: int) -> str:
    """Return six letters, others for each number: digits would be a protected span, which the model never sees."""
    return "".join("bcdfghjklm"[int(digit)] for digit in f"{number:06}")


async def cpu_us(server: ServerProcess, number: int, *, is_new: bool) -> float:
    """Return the CPU time of a call in the server's process, in microseconds."""
    process, numbers = psutil.Process(server.process.pid), iter(range(number))

    async def work(calls: Calls) -> None:
        for _ in numbers:
            await calls.translate(f"eight {_word(next(_numbers))}" if is_new else "eight tokens")

    async with calling(server.address) as calls:
        await calls.translate("eight tokens")
        before = process.cpu_times()
        await asyncio.gather(*(work(calls) for _ in range(CALLERS)))
        after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system) / number * 1e6


def costs(number: int, rounds: int) -> dict[str, list[float]]:
    """Return the CPU times of calls without the cache, and with it, in turns."""
    found: dict[str, list[float]] = {"without": [], "miss": [], "hit": []}
    with ExitStack() as stack:
        servers = []
        for megabytes in (0, 16):
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            case = Case("short", "", {SETTING: str(megabytes)})
            servers.append(stack.enter_context(our_server(case, scratch)))
        without, with_cache = servers
        for server in servers:
            asyncio.run(cpu_us(server, number // 4, is_new=True))  # warm
        for _ in range(rounds):
            found["without"].append(asyncio.run(cpu_us(without, number, is_new=True)))
            found["miss"].append(asyncio.run(cpu_us(with_cache, number, is_new=True)))
            found["hit"].append(asyncio.run(cpu_us(with_cache, number, is_new=False)))
    return found


def rows(load: dict[str, dict[str, float]], cost: dict[str, list[float]]) -> Iterator[str]:
    """Yield the lines of the tables."""
    yield f"{'':10} {'calls/s':>9} {'p50 ms':>8} {'p95 ms':>8} {'hits':>6} {'MB':>6}"
    for name, one in load.items():
        yield (
            f"{name:10} {one['calls_per_s']:9.1f} {one['p50_ms']:8.1f} {one['p95_ms']:8.1f} {one['hits']:6.0%} "
            f"{one['mb']:6.2f}"
        )
    yield ""
    yield f"{'':10} {'CPU us a call':>14} {'ratio':>7}"
    for name, times in cost.items():
        ratio = median(a / b for a, b in zip(times, cost["without"], strict=True))
        yield f"{name:10} {median(times):14.0f} {ratio:7.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--sentences", type=int, default=2_000)
    parser.add_argument("--exponent", type=float, default=1.0)
    parser.add_argument("--misses", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    texts = zipf(list(own_sentences(arguments.sentences)), arguments.exponent, arguments.calls)
    load = {name: under_zipf(megabytes, texts) for name, megabytes in (("without", 0), ("16 MB", 16))}
    cost = costs(arguments.misses, arguments.rounds)
    print("\n".join(rows(load, cost)))
    result: dict[str, Any] = {"load": load, "cpu_us": cost, "machine": machine.describe(2)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
