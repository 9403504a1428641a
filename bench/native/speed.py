"""How fast the products of this CPU's instruction sets are, beside their dot products: `python -m bench.native.speed`.

A compiler that moves sums to memory shows here, and nowhere else: shares of less than 60 % with 32 rows on a quiet CPU.
"""

import subprocess
import tempfile
from pathlib import Path

from service.engine.cpu.native.build import FLAGS, SET_FLAGS, SOURCES, find_compiler
from service.engine.cpu.native.library import instruction_set

HERE = Path(__file__).parent
SETS = {"avx2": "Avx2", "avxvnni": "AvxVnni", "avx512vnni": "Avx512Vnni"}


def main() -> None:
    """Compile and run the measurement for each set that this CPU can run."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as directory:
        for name, isa in SETS.items():
            if not instruction_set(name):
                continue
            program = f"{directory}/{name}"
            chosen = (f"-DISA={isa}", f'-DSET="kernels_{name}.cpp"', "-Wno-unused-function", f"-I{SOURCES}")
            flags = (*FLAGS, *SET_FLAGS[f"kernels_{name}.cpp"], *chosen)
            subprocess.run([*compiler, *flags, str(HERE / "speed.cpp"), "-o", program], check=True)
            print(f"{name}, 10^9 operations a second and their share of its dot products, by rows")
            subprocess.run([program], check=True)


if __name__ == "__main__":
    main()
