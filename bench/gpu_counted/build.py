"""Builds the counted GPU: libraries that stand in for CUDA, cuBLAS, cuDNN and the driver.

    python -m bench.gpu_counted.build DIRECTORY --cuda HEADERS --provider libonnxruntime_providers_cuda.so

The real CUDA provider of ONNX Runtime and the real runner run on them.  Memory is the host's and kernels compute
nothing, but every launch, copy, synchronisation and cuDNN plan is counted (`counters.py`), and what a recorded step
must not do is noticed.  So what a step costs can be held on machines without a GPU; what it computes cannot: tokens
come from the same graphs on the CPU (`twin.py`).  `make test-gpu-counted` builds and runs all of it.

What the provider asks of the libraries beyond `native/` is made up: functions that succeed and do nothing.
"""

import argparse
import re
import subprocess
from pathlib import Path

NATIVE = Path(__file__).parent / "native"
COMPILER = ("g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
# By soname: source, and the beginning of its functions' names.
LIBRARIES = {
    "libcudart.so.13": ("cudart.cpp", "cuda"),
    "libcublasLt.so.13": ("", "cublasLt"),
    "libcublas.so.13": ("cublas.cpp", "cublas"),
    "libcudnn.so.9": ("cudnn.cpp", "cudnn"),
    "libcurand.so.10": ("", "curand"),
    "libcuda.so.1": ("cuda.cpp", "cu"),
}


def main() -> None:
    """Build what is older than its sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--cuda", type=Path, required=True, help="CUDA's headers")
    parser.add_argument("--provider", type=Path, required=True, help="ONNX Runtime's library")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    wanted = asked_for(given.provider)
    for soname in LIBRARIES:
        build(soname, wanted, given.directory, given.cuda)


def asked_for(provider: Path) -> set[str]:
    """Return the names of CUDA's functions that the provider imports, or looks for when it runs."""
    listing = subprocess.run(["nm", "-D", "--undefined-only", provider], capture_output=True, text=True, check=True)
    imported = {line.split()[-1].partition("@")[0] for line in listing.stdout.splitlines()}
    looked_for = re.findall(rb"\0(cu(?:dnn)?[A-Z]\w{4,60})(?=\0)", provider.read_bytes())
    return {name for name in imported if name.startswith(("cu", "__cuda"))} | {name.decode() for name in looked_for}


def build(soname: str, wanted: set[str], directory: Path, headers: Path) -> None:
    """Compile one library."""
    source, prefix = LIBRARIES[soname]
    text = (NATIVE / source).read_text(encoding="utf-8") if source else ""
    longer = tuple(other for _, other in LIBRARIES.values() if other.startswith(prefix) and other != prefix)
    own = {name for name in wanted if name.startswith(prefix) and not name.startswith(longer or ("-",))}
    missing = sorted(name for name in own if not re.search(rf"\b{name}\(", text))
    rest = directory / f"{soname}.rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in missing), encoding="utf-8")
    versions = directory / f"{soname}.map"
    versions.write_text(f"{soname} {{ global: *; }};\n", encoding="utf-8")
    library = directory / soname
    _compile_c(rest)
    command = [*COMPILER, f"-I{headers}", f"-Wl,-soname,{soname}", f"-Wl,--version-script={versions}"]
    command += [*([str(NATIVE / source)] if source else []), str(rest.with_suffix(".o")), "-o", str(library)]
    if soname != "libcudart.so.13":
        command += [f"-L{directory}", "-l:libcudart.so.13", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, check=True)


def _compile_c(source: Path) -> None:
    command = ["gcc", "-fPIC", "-c", "-fno-builtin", str(source), "-o", str(source.with_suffix(".o"))]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
