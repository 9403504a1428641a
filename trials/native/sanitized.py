"""Builds the native library with sanitizers and runs its tests with it: `python -m trials.native.sanitized`.

The library that the server uses stays as it is.  What the sanitizers find ends the run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from service.engine.cpu.native import library
from service.engine.cpu.native.build import WARNINGS, build, find_compiler
from trials.native import border

_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g1")
_TESTS = (
    ("tests/parity/test_native_engine.py", "tests/parity/test_native_search.py"),
    ("tests/parity/test_engine_matches_reference.py", "tests/parity/test_described_models.py", "-k", "native"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trials.native.sanitized", description=__doc__)
    parser.add_argument("--calls", type=int, default=30_000, help="at random, of each of three models")
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)  # in the process that has the sanitizers
    given = parser.parse_args()
    if given.library:
        sys.exit(run(given.library, given.calls))
    compiler = find_compiler()
    runtime = subprocess.run(
        [*compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    # Python was built without them, so that the sanitizers' own library has to come first; what it keeps is no leak.
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as directory:
        built = build((*_FLAGS, *WARNINGS), Path(directory) / "libdragoman.so")
        command = [sys.executable, "-m", "trials.native.sanitized", "--library", str(built)]
        command += ["--calls", str(given.calls)]
        sys.exit(subprocess.run(command, check=False, env=environment).returncode)


def run(built: Path, num_calls: int) -> int:
    """Run everything with this library in this process; return the first status that is not 0."""
    with mock.patch.object(library, "library_path", return_value=built):
        border.run(num_calls)
        for arguments in _TESTS:
            print(*arguments, flush=True)
            if status := pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *arguments]):
                return int(status)
    return 0


if __name__ == "__main__":
    main()
