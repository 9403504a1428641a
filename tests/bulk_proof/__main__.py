"""`make prove-bulk`: what `dragoman bulk` promises of a kill, on a large file.

    python -m tests.bulk_proof [--lines 100000] [--fake] [--engine ray]

Translates own sentences by a server of its own, undisturbed, and again in processes of which ten are killed with
SIGKILL: nine at moments that the seed draws, one inside the write of a part (`tests/fakes/bulk_runs.py`).
Held: the same sha256, and nothing left over.  With `--engine ray` one of Ray's workers is killed in the middle instead.

en-de, in its default search and without a shortlist, translates 100,000 lines in about eight minutes on
two cores, and the file is translated twice; `--fake` has a model that only repeats.  A table, and one JSON line.
"""

import argparse
import hashlib
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from service.extras import how_to_install
from tests.bulk_proof.runs import BulkRun, Interrupted, interrupted, planned, with_a_worker_killed
from tests.fakes.bulk_runs import parts_folder
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.long_runs import verdict
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start, start_default

ENGINES = ("local", "ray")
LEAST_LINES = 200
NUM_PARTS = 100  # of a thousand lines each, as they come, where there are 100,000
RAY_WORKERS = 2
SLOWEST = 20.0  # sentences a second, below which a run is taken to hang
START_S = 120.0  # for all that is no sentence; Ray takes half a minute


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bulk_proof")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10, help="one of them inside a write; of Ray always one")
    parser.add_argument("--engine", choices=ENGINES, default="local")
    parser.add_argument("--fake", action="store_true", help="a model that only repeats, behind the real server")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    options = parser.parse_args()
    if options.lines < LEAST_LINES or options.kills < 1:
        parser.error(f"--lines {options.lines} --kills {options.kills}: at least {LEAST_LINES} and 1 are needed")
    return options


@contextmanager
def serving(scratch: Path, *, is_fake: bool) -> Iterator[ServerProcess]:
    """Run the server of the proof."""
    server = start(write_echo_bundle(scratch / "echo"), scratch) if is_fake else start_default(scratch)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def prove(options: argparse.Namespace, server: ServerProcess, scratch: Path) -> dict[str, Any]:
    """Run both and return their figures."""
    part_size = max(1, options.lines // NUM_PARTS)
    source, whole, output = (scratch / name for name in ("in.txt", "whole.txt", "killed.txt"))
    source.write_text("".join(f"{line}\n" for line in own_sentences(options.lines)), encoding="utf-8")
    extra = ("--engine", "ray", "--workers", str(RAY_WORKERS)) if options.engine == "ray" else ()
    flags = ("--part-size", str(part_size), *extra)
    longest_s = START_S + options.lines / SLOWEST

    def run_to(file: Path) -> BulkRun:
        return BulkRun(source=source, output=file, address=server.address, options=flags, longest_s=longest_s)

    _say(f"{options.lines:,} lines, undisturbed")
    whole_s = run_to(whole).to_end()
    answered = server.metric("dragoman_client_texts_total")
    _say(f"{whole_s:.1f} s; and now with kills")
    if options.engine == "ray":
        parts = random.Random(options.seed).randint(3 * NUM_PARTS // 10, 6 * NUM_PARTS // 10)
        seen = Interrupted(seconds=with_a_worker_killed(run_to(output), parts, _say))
    else:
        seen = interrupted(run_to(output), planned(options.seed, options.kills, whole_s), _say)
    return {
        "bench": "bulk_proof",
        "lines": options.lines,
        "part_size": part_size,
        "engine": options.engine,
        "model": "fake" if options.fake else "included",
        "sha256": sha256_of(whole),
        "sha256_after_kills": sha256_of(output),
        "kills": len(seen.killed) or int(options.engine == "ray"),
        "parts_at_kills": [killed.parts for killed in seen.killed],
        "in_a_write": next((str(killed) for killed in seen.killed if killed.kill.in_write and killed.draft), None),
        "seconds": round(whole_s, 1),
        "seconds_with_kills": round(seen.seconds, 1),
        "sentences_per_s": round(options.lines / whole_s, 1),
        "sentences_per_s_with_kills": round(options.lines / seen.seconds, 1),
        "answered_twice": int(server.metric("dragoman_client_texts_total") - answered) - options.lines,
        "left_over": parts_folder(output).exists(),
    }


def sha256_of(file: Path) -> str:
    """Return the hash of a file's content; empty where there is none."""
    if not file.exists():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def facts(figures: dict[str, Any], kills: int) -> dict[str, bool]:
    """Return what these figures would break, and whether they do.

    Args:
        kills: that were wanted.
    """
    is_local = figures["engine"] == "local"
    return {
        "there is no output": not figures["sha256_after_kills"],
        "the output is another one": figures["sha256_after_kills"] != figures["sha256"],
        "parts are left over": figures["left_over"],
        f"{figures['kills']} kills, {kills} were planned": is_local and figures["kills"] < kills,
        "no kill was inside a write": is_local and figures["in_a_write"] is None,
        "records were lost": figures["answered_twice"] < 0,
    }


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    """Return 0 if everything held or Ray is missing, else 1."""
    options = arguments()
    if options.engine == "ray" and find_spec("ray") is None:
        print(f"skipped: Ray is not installed: {how_to_install('ray')}")
        return 0
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory), is_fake=options.fake) as server:
        figures = prove(options, server, Path(directory))
    return verdict("dragoman bulk, killed", figures, facts(figures, options.kills))


if __name__ == "__main__":
    sys.exit(main())
