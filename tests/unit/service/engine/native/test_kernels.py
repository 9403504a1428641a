"""The kernels of every instruction set give what the plain ones give; what this CPU lacks runs emulated."""

import subprocess
from pathlib import Path

import pytest

from service.engine.cpu.native.build import FLAGS, SET_FLAGS, SOURCES, WARNINGS, BuildError, build, find_compiler

TESTS = Path(__file__).parents[4] / "native"
BASE = "kernels_avx2.cpp"


# Words of /proc/cpuinfo where a set can run.
NEEDED = {BASE: {"avx2", "fma", "f16c"}, "kernels_avxvnni.cpp": {"avx_vnni"}, "kernels_avx512vnni.cpp": {"avx512_vnni"}}


def can_run(name: str) -> bool:
    return NEEDED[name] <= set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())


@pytest.fixture(scope="module")
def compiler() -> list[str]:
    try:
        return find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


def objects_of(compiler: list[str], commands: dict[Path, list[str]], directory: Path) -> list[str]:
    """Compile sources, each with flags of its own, beside each other."""
    objects = [str(directory / f"{source.stem}.{number}.o") for number, source in enumerate(commands)]
    running = [
        subprocess.Popen([*compiler, *flags, "-I", str(SOURCES), "-c", str(source), "-o", target])
        for (source, flags), target in zip(commands.items(), objects, strict=True)
    ]
    assert [process.wait() for process in running] == [0] * len(running)
    return objects


def found_by_test(compiler: list[str], objects: list[str], directory: Path) -> list[str]:
    """Link the objects with the comparison, run it, and return its lines."""
    program = str(directory / "kernels_test")
    subprocess.run(
        [*compiler, "-std=c++17", "-O1", "-I", str(SOURCES), str(TESTS / "kernels_test.cpp"), *objects, "-o", program],
        check=True,
    )
    return subprocess.run([program], check=False, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.thorough  # compiles for a minute; tests/parity has what the sets of this CPU make of a model
def test_every_set_that_this_cpu_runs_gives_what_the_plain_kernels_give(compiler, tmp_path):
    sets = [name for name in SET_FLAGS if can_run(name)]
    # The others are not compiled: their names mean kernels that are there, and that nothing looks for.
    others = [
        f"-D{name[len('kernels_') : -len('.cpp')]}_kernels=plain_kernels" for name in SET_FLAGS if name not in sets
    ]
    sources = [TESTS / "plain.cpp", *(SOURCES / name for name in ("cpu.cpp", *sets))]
    commands = {source: [*FLAGS, *WARNINGS, *SET_FLAGS.get(source.name, ()), *others] for source in sources}

    lines = found_by_test(compiler, objects_of(compiler, commands, tmp_path), tmp_path)

    assert sum(line.endswith(": as the plain kernels") for line in lines) == len(sets)
    assert len(lines) == len(SET_FLAGS)


@pytest.mark.thorough
@pytest.mark.skipif(not can_run(BASE), reason="the emulation needs AVX2")
@pytest.mark.skipif(not Path("/usr/include/simde/x86/avx512.h").exists(), reason="there is no SIMDe (libsimde-dev)")
def test_sets_that_this_cpu_lacks_give_it_where_they_are_emulated(compiler, tmp_path):
    base = [*FLAGS, *SET_FLAGS[BASE], "-w", f"-I{TESTS / 'emulated'}"]
    commands = {
        TESTS / "plain.cpp": [*FLAGS],
        TESTS / "emulated" / "cpu.cpp": [*FLAGS],
        SOURCES / BASE: base,
        SOURCES / "kernels_avxvnni.cpp": [*base, "-DEMULATES_AVXVNNI"],
        SOURCES / "kernels_avx512vnni.cpp": [*base, "-DEMULATES_AVX512"],
    }

    lines = found_by_test(compiler, objects_of(compiler, commands, tmp_path), tmp_path)

    assert lines == [f"{name}: as the plain kernels" for name in ("avx2", "avxvnni", "avx512vnni")]


def test_a_set_is_asked_for_whatever_its_flags_let_the_compiler_use():
    asked = (SOURCES / "cpu.cpp").read_text().lower()

    assert [flag for flags in SET_FLAGS.values() for flag in flags if flag[:2] == "-m" and flag[2:] not in asked] == []


@pytest.mark.thorough
def test_the_compiler_warns_of_nothing(compiler, tmp_path):
    assert build(WARNINGS, tmp_path / "libdragoman.so").is_file()


@pytest.mark.thorough
def test_no_code_of_a_set_can_be_taken_for_that_of_another(compiler, tmp_path):
    """A function that two objects define weakly is linked once: perhaps the one that this CPU cannot run."""
    sets = objects_of(compiler, {SOURCES / name: [*FLAGS, *flags] for name, flags in SET_FLAGS.items()}, tmp_path)

    symbols = subprocess.run(["nm", *sets], check=True, capture_output=True, text=True).stdout.splitlines()

    shared = [line for line in symbols if line.split()[-2:-1] and line.split()[-2] in "WVu"]
    assert shared == []
    assert not [line for line in symbols if "_GLOBAL__sub_I" in line]  # nor does any run when the library is loaded
