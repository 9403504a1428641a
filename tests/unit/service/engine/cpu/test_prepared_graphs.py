"""Graphs with packed weights: made once, used while they are this user's own, and otherwise the bundle's own."""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import onnxruntime as ort
import pytest

from model.bundle import Bundle, default_bundle_dir
from service.engine.cpu import prepared_graphs, runner
from service.engine.cpu.prepared_graphs import PreparedGraphs, default_directory
from service.engine.cpu.runner import create_runner, open_session
from service.engine.spec import EngineSpec
from service.lock_file import locked
from tests.fakes.prepared import DECODER, ENCODER, entries, graphs, path_without_sharing

PRINT_PATH = """
import sys
from pathlib import Path
from tests.fakes.prepared import ENCODER, graphs
print(graphs(Path(sys.argv[1])).path(ENCODER))
"""
PRINT_PATH_ON_A_FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from service.engine.cpu.prepared_graphs import default_directory
from tests.fakes.prepared import ENCODER, graphs
print(graphs(default_directory()).path(ENCODER))
"""
# It waits for a word before it looks whether there is an entry.
PRINT_SAVES = """
import sys
from pathlib import Path
from service.engine.cpu.prepared_graphs import PreparedGraphs
from tests.fakes.prepared import ENCODER, graphs
save, saved = PreparedGraphs._save, []
def counted(self, graph, target, *, with_packed):
    saved.append(graph)
    save(self, graph, target, with_packed=with_packed)
PreparedGraphs._save = counted
prepared = graphs(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
prepared.path(ENCODER)
print(len(saved))
"""


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.load(default_bundle_dir(), verify=False)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "prepared"


@pytest.fixture
def saves(monkeypatch) -> list[Path]:
    """The graphs that are saved, two for each that is made."""
    saved: list[Path] = []
    save = PreparedGraphs._save

    def counted(self, graph, target, *, with_packed):
        saved.append(graph)
        save(self, graph, target, with_packed=with_packed)

    monkeypatch.setattr(PreparedGraphs, "_save", counted)
    return saved


def maps(directory: Path) -> set[str]:
    """Files below it that this process has in its memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if str(directory) in line}


def test_a_graph_is_made_once_and_found_again(bundle, directory, saves):
    first = graphs(directory, bundle).path(DECODER)

    assert graphs(directory, bundle).path(DECODER) == first
    assert first.parent.parent == directory
    assert len(saves) == 2
    assert entries(directory) == [first.parent]  # and no draft


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_weights_are_mapped_from_the_file(bundle, directory):
    session = open_session(graphs(directory, bundle).path(DECODER), 1)

    assert any(name.endswith("graph.data") for name in maps(directory))
    del session


def test_weights_another_cpu_or_other_optimizers_have_an_entry_of_their_own(bundle, directory):
    weights = "int8/weights.data"
    others = {**bundle.manifest.files, weights: replace(bundle.manifest.files[weights], sha256="0" * 64)}
    other = replace(bundle, manifest=replace(bundle.manifest, files=others))

    keys = [
        graphs(directory, bundle).key(DECODER),
        graphs(directory, bundle).key(ENCODER),
        graphs(directory, other).key(DECODER),
        graphs(directory, bundle, flags=frozenset({"avx2"})).key(DECODER),
        graphs(directory, bundle, disabled=()).key(DECODER),
    ]

    assert len(set(keys)) == len(keys)
    assert graphs(directory, bundle).key(DECODER) == keys[0]


def test_another_version_of_onnx_runtime_has_entries_of_its_own(bundle, directory, monkeypatch):
    before = graphs(directory, bundle).key(DECODER)
    monkeypatch.setattr(ort, "__version__", "0.0.0")

    assert graphs(directory, bundle).key(DECODER) != before


def test_files_of_another_folder_do_not_matter(bundle, directory):
    others = {**bundle.manifest.files, "golden.tsv": replace(next(iter(bundle.manifest.files.values())), sha256="0")}
    other = replace(bundle, manifest=replace(bundle.manifest, files=others))

    assert graphs(directory, other).key(DECODER) == graphs(directory, bundle).key(DECODER)


def opened_by_others(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)


def opened_by_the_group(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)


def linked(directory: Path) -> None:
    real = directory.with_name("real")
    real.mkdir(0o700)
    directory.symlink_to(real)


def a_file(directory: Path) -> None:
    directory.write_text("")


@pytest.mark.parametrize("spoil", [opened_by_others, opened_by_the_group, linked, a_file])
def test_a_directory_that_may_not_be_used_leaves_the_bundle_s_own_graph(bundle, directory, saves, spoil):
    spoil(directory)

    assert path_without_sharing(graphs(directory, bundle), DECODER) == bundle.path(DECODER)
    assert saves == []


def test_a_directory_of_another_user_is_not_used(bundle, directory, saves, monkeypatch):
    directory.mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)

    assert path_without_sharing(graphs(directory, bundle), DECODER) == bundle.path(DECODER)
    assert saves == []


def test_an_entry_that_others_may_write_to_is_made_again(bundle, directory, saves):
    entry = graphs(directory, bundle).path(DECODER).parent
    entry.chmod(0o777)

    graphs(directory, bundle).path(DECODER)

    assert len(saves) == 4
    assert entry.stat().st_mode & 0o022 == 0


def test_where_no_directory_can_be_made_the_bundle_s_own_graph_serves(bundle, tmp_path):
    directory = tmp_path / "gone" / "prepared"

    assert path_without_sharing(graphs(directory, bundle), DECODER) == bundle.path(DECODER)


@pytest.mark.parametrize(("set_to", "parent"), [("/nowhere/yet", "/nowhere/yet"), ("", "/tmp"), (None, "/tmp")])
def test_the_directory_is_where_the_environment_says_whether_or_not_one_can_write_there(monkeypatch, set_to, parent):
    monkeypatch.delenv("TMPDIR", raising=False)
    if set_to is not None:
        monkeypatch.setenv("TMPDIR", set_to)

    assert default_directory() == Path(parent) / f"dragoman-{os.geteuid()}"


def test_where_nothing_can_be_written_any_more_entries_that_are_there_serve(bundle, tmp_path, monkeypatch):
    """A limit of a file's size stands for a full disk, in a process of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    graph = graphs(default_directory(), bundle).path(ENCODER)

    assert run_python(PRINT_PATH_ON_A_FULL_DISK, tmp_path).strip() == str(graph)


def test_where_no_times_can_be_set_entries_that_are_there_serve(bundle, directory, monkeypatch):
    graph = graphs(directory, bundle).path(ENCODER)

    def read_only(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "utime", read_only)

    assert graphs(directory, bundle).path(ENCODER) == graph


def test_without_room_the_bundle_s_own_graph_serves(bundle, directory, monkeypatch, saves):
    usage = shutil.disk_usage(directory.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10_000_000))

    assert path_without_sharing(graphs(directory, bundle), DECODER) == bundle.path(DECODER)
    assert saves == []
    assert entries(directory) == []


def test_a_disk_that_fills_up_leaves_nothing_and_the_bundle_s_own_graph_serves(bundle, directory):
    """A limit of a file's size stands for it, in a process of its own."""
    script = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))\n" + PRINT_PATH

    done = run_python(script, directory)

    assert done.strip() == str(bundle.path(ENCODER))
    assert entries(directory) == []


def test_what_fails_is_tried_once_by_an_engine(bundle, directory, monkeypatch):
    tried: list[Path] = []

    def refused(self, graph, target, *, with_packed):
        tried.append(graph)
        raise RuntimeError("no")

    monkeypatch.setattr(PreparedGraphs, "_save", refused)
    prepared = graphs(directory, bundle)

    paths = [path_without_sharing(prepared, ENCODER), prepared.path(DECODER)]

    assert paths == [bundle.path(ENCODER), bundle.path(DECODER)]
    assert tried == [bundle.path(ENCODER)]


@pytest.mark.parametrize("rest", ["graph.onnx", "graph.data"])
def test_an_entry_of_which_a_part_is_gone_is_made_again(bundle, directory, saves, rest):
    graph = graphs(directory, bundle).path(DECODER)
    (graph.parent / rest).unlink()

    assert graphs(directory, bundle).path(DECODER) == graph
    assert len(saves) == 4
    open_session(graph, 1)


def test_a_draft_is_no_entry_and_the_next_one_who_makes_any_removes_it(bundle, directory):
    key = graphs(directory, bundle).key(DECODER)
    draft = directory / ".draft.of-a-dead-one" / "packed"
    draft.mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    (draft / "graph.onnx").write_bytes(b"half")

    graphs(directory, bundle).path(DECODER)

    assert [path.name for path in entries(directory)] == [key]


def test_a_bundle_that_is_replaced_meanwhile_leaves_no_entry(directory, tmp_path, monkeypatch):
    copy = Path(shutil.copytree(default_bundle_dir(), tmp_path / "copy"))
    bundle = Bundle.load(copy)
    save = PreparedGraphs._save

    def replaced(self, graph, target, *, with_packed):
        save(self, graph, target, with_packed=with_packed)
        with (copy / "int8" / "weights.data").open("r+b") as stream:
            stream.write(b"others")

    monkeypatch.setattr(PreparedGraphs, "_save", replaced)

    assert path_without_sharing(graphs(directory, bundle), DECODER) == bundle.path(DECODER)
    assert entries(directory) == []


def test_processes_that_start_at_once_make_an_entry_once(directory):
    command = [sys.executable, "-c", PRINT_SAVES, str(directory)]
    processes = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    saved = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sorted(saved) == [0, 2]
    assert len(entries(directory)) == 1


def test_who_waits_too_long_for_another_takes_the_bundle_s_own_graph(bundle, directory, monkeypatch, saves):
    monkeypatch.setattr(prepared_graphs, "_LONGEST_WAIT_S", 0.05)
    directory.mkdir(0o700)

    with locked(directory / "lock", 10.0):
        waited = path_without_sharing(graphs(directory, bundle), DECODER)

    assert waited == bundle.path(DECODER)
    assert saves == []


@pytest.mark.parametrize("shared", [True, False])
def test_an_engine_s_graphs_are_shared_where_its_spec_says_so(directory, monkeypatch, shared):
    monkeypatch.setattr(runner, "default_directory", lambda: directory)

    create_runner(EngineSpec(bundle_dir=default_bundle_dir(), shared_weights=shared))

    assert directory.exists() is shared


def run_python(script: str, directory: Path) -> str:
    command = [sys.executable, "-c", script, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
