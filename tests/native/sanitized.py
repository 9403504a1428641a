"""Builds the native library with sanitizers and runs its tests with it: `python -m tests.native.sanitized`.

The library that the server uses is put back at the end.  What the sanitizers find ends the run.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from service.engine.cpu.native.build import build, find_compiler, library_path

_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
_RUNS = (
    ("-m", "tests.native.border", "--calls", "100000"),
    ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/parity/test_native_engine.py"),
    ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/parity/test_engine_matches_reference.py", "-k", "native"),
)


def main() -> None:
    compiler, usual = find_compiler(), build()
    runtime = subprocess.run(
        [*compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    # Python was built without them, so that the sanitizers' own library has to come first; what it keeps is no leak.
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(dir=usual.parent) as scratch:
        kept = usual.rename(Path(scratch) / usual.name)
        try:
            build(_FLAGS, library_path())
            for arguments in _RUNS:
                print(*arguments, flush=True)
                if status := subprocess.run([sys.executable, *arguments], check=False, env=environment).returncode:
                    sys.exit(status)
        finally:
            kept.replace(usual)


if __name__ == "__main__":
    main()
