"""Generates the Python code of the wire contracts: `python -m protos.generate [--check]`.

The generated files are committed, so that installing the service needs no compiler.  Needs grpcio-tools, a development
dependency.
"""

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "protos/translation.proto",
    "protos/admin.proto",
    "protos/google_translation.proto",
    "protos/open_inference.proto",
    "protos/graph_weights.proto",
)
CALLED = SOURCES[:2]  # by our own clients, which need stubs; the other services are answered, never called
GENERATED = (
    *(source.removesuffix(".proto") + suffix for source in SOURCES for suffix in ("_pb2.py", "_pb2.pyi")),
    *(source.removesuffix(".proto") + "_pb2_grpc.py" for source in CALLED),
)

# The generators stamp their own versions into their output; these lines say nothing about the contract.
_VERSION_STAMPS = re.compile(r"^(# Protobuf Python Version:.*|GRPC_GENERATED_VERSION = .*|    \d+,)$", re.MULTILINE)


def generate(output: Path) -> None:
    """Write the generated files under `output`.

    Raises:
        RuntimeError: the compiler refused the contract; it has said why on standard error.
    """
    from grpc_tools import protoc  # noqa: PLC0415  the package must import without it

    paths = ["protoc", f"--proto_path={ROOT}", f"--proto_path={files('grpc_tools') / '_proto'}"]
    for arguments in (
        [f"--python_out={output}", f"--pyi_out={output}", *SOURCES],
        [f"--grpc_python_out={output}", *CALLED],
    ):
        if protoc.main([*paths, *arguments]) != 0:
            raise RuntimeError(f"{' or '.join(SOURCES)} does not compile")


def without_version_stamps(code: str) -> str:
    """The generated code without the lines that name the generator's versions."""
    return _VERSION_STAMPS.sub("", code)


def stale_files(root: Path = ROOT) -> list[str]:
    """Names of the generated files under `root` that are missing or differ from what the contract gives today."""
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        return [name for name in GENERATED if _read(root / name) != _read(Path(directory) / name)]


def _read(path: Path) -> str:
    return without_version_stamps(path.read_text(encoding="utf-8")) if path.exists() else ""


def main(arguments: list[str]) -> int:
    """Generate, or with `--check` only say what is stale; the exit status."""
    if arguments == ["--check"]:
        stale = stale_files()
        if stale:
            print(f"stale: {', '.join(stale)}; run: python -m protos.generate", file=sys.stderr)
        return 1 if stale else 0
    if arguments:
        print("usage: python -m protos.generate [--check]", file=sys.stderr)
        return 2
    generate(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
