"""`make fuzz`: bad bytes and bad manners against a real server with the echo engine, and what it made of them.

    python -m tests.fuzz --messages 1000000

Held: the process lives, its memory is flat, legitimate calls beside it are answered, nothing ends with UNKNOWN,
INTERNAL or UNAVAILABLE, at least 30 % of the messages reach admission, the books balance on every page.
"""

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fakes.books import Watch, watching
from tests.fakes.calls import calling
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.probe import Probe, probing
from tests.fakes.server_process import ROOT, ServerProcess, start
from tests.fakes.trend import trend
from tests.fuzz.floods import flooding

FORBIDDEN = ("UNKNOWN", "INTERNAL", "UNAVAILABLE")
LEAST_PARSED = 0.3
WARM_UP = 0.2  # of the time, before memory counts
FLAT_BYTES_PER_MESSAGE = 20.0  # 20 MB in a million; the slope's lower end must be below
QUIET_S = 3.0


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


async def run(options: argparse.Namespace, server: ServerProcess) -> dict[str, Any]:
    """Everything at once; the figures."""
    async with AsyncExitStack() as stack:
        calls = await stack.enter_async_context(calling(server.address))
        async with probing(calls) as alone:
            await asyncio.sleep(QUIET_S)
        watch = stack.enter_context(watching(server))
        floods = stack.enter_context(flooding(server.grpc_port))
        progress = stack.enter_context(_progress())
        began = time.monotonic()
        async with probing(calls) as beside:
            reports = await _send(options, server, progress)
        seconds = time.monotonic() - began
    return _figures(options, server, seconds, reports, dict(floods), alone, beside, watch)


async def _send(options: argparse.Namespace, server: ServerProcess, progress: Progress) -> list[dict[str, Any]]:
    """The last report of each worker."""
    bar = progress.add_task("messages", total=options.messages)
    share = options.messages // options.connections
    last: list[dict[str, Any]] = [{"sent": 0, "parsed": 0, "codes": {}} for _ in range(options.connections)]

    async def work(number: int) -> None:
        details = (server.address, str(share), str(options.seed * 1_000 + number))
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.fuzz.worker", *details, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdout is not None
        async for line in worker.stdout:
            last[number] = json.loads(line)
            progress.update(bar, completed=sum(report["sent"] for report in last))
        assert await worker.wait() == 0, f"worker {number} failed"

    await asyncio.gather(*(work(number) for number in range(options.connections)))
    return last


def _figures(
    options: argparse.Namespace,
    server: ServerProcess,
    seconds: float,
    reports: list[dict[str, Any]],
    floods: dict[str, int],
    alone: Probe,
    beside: Probe,
    watch: Watch,
) -> dict[str, Any]:
    sent = sum(report["sent"] for report in reports)
    codes: Counter[str] = Counter()
    for report in reports:
        codes.update(report["codes"])
    moments = watch.moments[int(WARM_UP * len(watch.moments)) :]
    memory = trend([moment.at for moment in moments], [moment.front_bytes for moment in moments])
    rate = sent / seconds
    return {
        "messages": sent,
        "seed": options.seed,
        "messages_per_s": round(rate, 1),
        "parsed_share": round(sum(report["parsed"] for report in reports) / sent, 3),
        "codes": dict(codes.most_common()),
        "floods": floods,
        "is_alive": server.process.poll() is None,
        "engine_restarts": server.metric("dragoman_engine_restarts_total"),
        "memory_mib": [round(moments[0].front_bytes / 2**20, 1), round(moments[-1].front_bytes / 2**20, 1)],
        "memory_bytes_per_message": [round(value / rate, 2) for value in (memory.low, memory.slope, memory.high)],
        "probe_calls": len(beside.waits),
        "probe_errors": dict(Counter(beside.errors)),
        "probe_p99_ms": [round(probe.p99() * 1e3, 1) for probe in (alone, beside)],
        "pages": len(watch.moments),
        "pages_out_of_balance": len(watch.imbalances),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def broken(figures: dict[str, Any]) -> list[str]:
    """Promises that these figures do not keep."""
    bad_codes = [code for code in figures["codes"] if code.split()[-1] in FORBIDDEN]
    facts = {
        "the server process died": not figures["is_alive"],
        "an engine process died": figures["engine_restarts"] > 0,
        f"calls ended with {', '.join(bad_codes)}": bool(bad_codes),
        f"only {figures['parsed_share']:.0%} of the messages parse": figures["parsed_share"] < LEAST_PARSED,
        f"{figures['probe_errors']} for legitimate calls": bool(figures["probe_errors"]),
        "memory grows": figures["memory_bytes_per_message"][0] > FLAT_BYTES_PER_MESSAGE,
        "the books do not balance": figures["pages_out_of_balance"] > 0,
    }
    return [what for what, is_so in facts.items() if is_so]


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def _print(figures: dict[str, Any]) -> None:
    table = Table("figure", "seen", title="Fuzz")
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)


def main() -> int:
    """0 if everything held, else 1."""
    options = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        server = start(write_echo_bundle(directory / "echo"), directory)
        try:
            figures = asyncio.run(run(options, server))
        finally:
            server.process.kill()
            server.process.wait()
    _print(figures)
    failures = broken(figures)
    print("\n".join(f"NOT HELD: {failure}" for failure in failures) or "all held")
    print(json.dumps({**figures, "not_held": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
