"""Compiles the native engine's library: `python -m service.engine.cpu.native.build [--required]`.

The result lies beside the sources, under a name that changes with them, so that no library serves sources that it was
not made of.  The server never compiles: it looks for that file, and serves with ONNX Runtime where there is none.
"""

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent
BUILT = SOURCES / "built"
COMPILERS = ("g++", "clang++")  # unless $CXX names one
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-math-errno")
# For our own checks alone: what a newer compiler warns of must not cost anybody the engine.
WARNINGS = ("-Wall", "-Wextra", "-Werror")
_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-Wno-unknown-pragmas")  # clang knows no `GCC unroll`
# Of the sources that are compiled for more than any x86-64 CPU has; the library asks the CPU before it calls them.
SET_FLAGS = {
    "kernels_avx2.cpp": _AVX2,
    "kernels_avxvnni.cpp": (*_AVX2, "-mavxvnni"),
    "kernels_avx512vnni.cpp": (
        *(*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
        *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),  # GCC 12 finds them in its own header of AVX-512
    ),
}


class BuildError(RuntimeError):
    """There is no library; the message says why."""


def library_path() -> Path:
    """Return where the library of these sources lies, or would lie."""
    digest = hashlib.sha256(repr((FLAGS, SET_FLAGS)).encode())
    for path in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return BUILT / f"libdragoman-{digest.hexdigest()[:16]}.so"


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler, or raise BuildError."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise BuildError(f"it is for Linux on x86-64, this is {platform.system()} on {platform.machine()}")
    given = os.environ.get("CXX", "")
    for command in [shlex.split(given)] if given else [[name] for name in COMPILERS]:
        if command and shutil.which(command[0]):
            return command
    wanted = f"{given} ($CXX)" if given else " or ".join(COMPILERS)
    raise BuildError(f"there is no C++ compiler: install {wanted}")


def build(extra_flags: Sequence[str] = (), target: Path | None = None) -> Path:
    """Compile the library unless it is there, one process for each source, and return its path.

    Args:
        extra_flags: for compiler and linker; with some, name a target.
        target: where to put it; None: where the server looks for it.

    Raises:
        BuildError: there is no compiler, or it refused; the message has what it said.
    """
    target = target or library_path()
    if target.is_file() and not extra_flags:
        return target
    compiler = find_compiler()
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        objects, running = [], []
        for source in sorted(SOURCES.glob("*.cpp")):
            objects.append(f"{scratch}/{source.stem}.o")
            flags = [*FLAGS, *extra_flags, *SET_FLAGS.get(source.name, ())]
            command = [*compiler, *flags, "-c", str(source), "-o", objects[-1]]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        said = [process.communicate()[0] for process in running]
        for process, output in zip(running, said, strict=True):
            if process.returncode:
                raise BuildError(f"{compiler[0]} failed:\n{output.decode(errors='replace')}")
        library = f"{scratch}/library.so"
        command = [*compiler, "-shared", *extra_flags, "-o", library, *objects]
        linked = subprocess.run(command, capture_output=True, text=True, check=False)
        if linked.returncode:
            raise BuildError(f"{compiler[0]} failed:\n{linked.stderr}")
        Path(library).replace(target)
    for old in BUILT.glob("libdragoman-*.so"):
        if target.parent == BUILT and old != target:
            old.unlink()
    return target


def main() -> None:
    """Build the library; without a compiler, say what is lost and succeed: the server works without it."""
    parser = argparse.ArgumentParser(prog="python -m service.engine.cpu.native.build", description=__doc__)
    parser.add_argument("--required", action="store_true", help="fail where the library cannot be built")
    required = parser.parse_args().required
    try:
        print(build())
    except BuildError as error:
        print(f"the native engine is not built: {error}; ONNX Runtime serves instead", file=sys.stderr)
        sys.exit(1 if required else 0)


if __name__ == "__main__":
    main()
