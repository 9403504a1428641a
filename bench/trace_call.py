"""The way of one call: the files, functions and kinds of record that a warm call crosses in its processes.

    python bench/trace_call.py                    # one Translate of "The cat sleeps."
    python bench/trace_call.py --list             # and the files, in the order in which the call enters them
    python bench/trace_call.py --libretranslate   # one POST /translate with the same text

The included model is served as a user would, by one frontend and one engine.  A `sitecustomize` in each process listens
for SIGUSR2, traces its main thread with `sys.setprofile` while the call runs, and writes down what of `service/` and
`model/` was called.  What an idle server calls in as much time does not count.  A record is a dataclass or a named
tuple of ours of which an object was made.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.bundle import default_bundle_dir
from service.client import Client
from tests.fakes.server_process import ROOT, start

TEXT = "The cat sleeps."
SETTLE_S = 1.0  # for a signal to arrive, and for what a call leaves to be done
TRACER = """
import json, os, signal, sys
from pathlib import Path

ROOT, OUT = {root!r}, {out!r}
functions, records = {{}}, set()  # of functions: in the order of their first calls

def note(frame, event, _):
    if event != "call":
        return
    code = frame.f_code
    name = code.co_filename
    if name.startswith(ROOT) and name[len(ROOT):].startswith(("/service/", "/model/")):
        functions.setdefault(f"{{name[len(ROOT) + 1:]}} {{code.co_qualname}}")
    elif name == "<string>" and (made := frame.f_locals.get("self", frame.f_locals.get("_cls"))) is not None:
        kind = made if isinstance(made, type) else type(made)
        if kind.__module__.startswith(("service.", "model.")):
            records.add(kind.__qualname__)

def toggle(*_):
    if sys.getprofile() is None:
        sys.setprofile(note)
        return
    sys.setprofile(None)
    said = dict(functions=list(functions), records=sorted(records))
    Path(OUT, str(os.getpid())).write_text(json.dumps(said))
    functions.clear(), records.clear()

signal.signal(signal.SIGUSR2, toggle)
"""


def main() -> None:
    """Trace one call and print what it crossed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the files, too")
    parser.add_argument("--libretranslate", action="store_true", help="trace POST /translate in place of gRPC")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = traced(Path(scratch), by_http=arguments.libretranslate)
    table = Table("process", "files", "functions", "records")
    for name, (functions, records) in found.items():
        table.add_row(name, str(len(_files(functions))), str(len(functions)), str(len(records)))
    files = {file for functions, _ in found.values() for file in _files(functions)}
    kinds = {kind for _, records in found.values() for kind in records}
    num_functions = sum(len(functions) for functions, _ in found.values())
    table.add_row("together", str(len(files)), str(num_functions), str(len(kinds)))
    Console().print(table)
    if arguments.list:
        for name, (functions, records) in found.items():
            print(f"\n{name}\n  " + "\n  ".join(_files(functions)))
            print(f"  records: {', '.join(records)}")
    print(json.dumps({"files": len(files), "functions": num_functions, "records": len(kinds)}))


def _files(functions: list[str]) -> list[str]:
    return list(dict.fromkeys(function.partition(" ")[0] for function in functions))


def traced(scratch: Path, *, by_http: bool) -> dict[str, tuple[list[str], list[str]]]:
    """Return the functions and the kinds of record of a warm call, in order, by the name of the process."""
    out = scratch / "out"
    out.mkdir()
    (scratch / "sitecustomize.py").write_text(TRACER.format(root=str(ROOT), out=str(out)))
    path = os.pathsep.join([str(scratch), os.environ.get("PYTHONPATH", "")])
    with start(
        default_bundle_dir(),
        scratch,
        PYTHONPATH=path,
        DRAGOMAN_ENGINE__NUM_ENGINES="1",
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.worker:create_runner",
        DRAGOMAN_LIMITS__TRANSLATION_CACHE_MB="0",
    ) as server:
        (engine,) = server.engine_pids()
        processes = {"core": server.process.pid, "engine": engine}
        with Client(server.address) as client:

            def call() -> None:
                if by_http:
                    body = json.dumps({"q": TEXT, "source": "en", "target": "de"}).encode()
                    url = f"http://127.0.0.1:{server.http_port}/translate"
                    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
                    urllib.request.urlopen(request, timeout=60).read()
                else:
                    client.translate([TEXT], source_language="en", target_language="de")

            for _ in range(20):
                call()
            time.sleep(SETTLE_S)
            idle, busy = (_watched(processes, out, step) for step in (lambda: None, call))
        return {
            name: (
                [one for one in said["functions"] if one not in idle[name]["functions"]],
                [one for one in said["records"] if one not in idle[name]["records"]],
            )
            for name, said in busy.items()
        }


def _watched(processes: dict[str, int], out: Path, step: Callable[[], None]) -> dict[str, dict[str, list[str]]]:
    """Return what each process says it has called while a step was done."""
    for is_on in (True, False):
        for pid in processes.values():
            os.kill(pid, signal.SIGUSR2)
        time.sleep(SETTLE_S)
        if is_on:
            step()
            time.sleep(SETTLE_S)
    return {name: json.loads((out / str(pid)).read_text()) for name, pid in processes.items()}


if __name__ == "__main__":
    main()
