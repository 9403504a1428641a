"""What the CPU of this machine can do with int8 products; known on Linux alone, from /proc/cpuinfo."""

from pathlib import Path

# What speeds up int8 products, best first.
INT8_FLAGS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction set extensions of the first CPU as Linux names them; empty if they are not known."""
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    fields = (line.partition(":") for line in lines)
    return next(
        (frozenset(value.split()) for key, _, value in fields if key.strip() in ("flags", "Features")), frozenset()
    )


def multiplies_int8_exactly(flags: frozenset[str]) -> bool:
    """Return whether sums of unsigned x signed products cannot saturate.

    x86 without dot products adds two such products in 16 bits.  ARM has no such instruction; an unknown CPU may be an
    x86 without dot products.
    """
    return not flags.isdisjoint(INT8_FLAGS)
