"""Prepared graphs stay while an engine maps them, and go when none does; what cannot be loaded goes too."""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from model.bundle import Bundle, BundleError, default_bundle_dir
from service.engine.cpu import prepared_graphs, runner
from service.engine.cpu.runner import OnnxRunner, open_session
from service.lock_file import PathLock, locked
from tests.fakes.int8_products import HAS_INT8_PRODUCTS
from tests.fakes.prepared import DECODER, ENCODER, entries, graphs

LONG_AGO_S = 3_600.0


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.load(default_bundle_dir(), verify=False)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "prepared"


def age(*found: Path) -> None:
    """As if engines had begun with these long ago."""
    for entry in found:
        then = entry.stat().st_mtime - LONG_AGO_S
        os.utime(entry, (then, then))


def make_another(directory: Path, bundle: Bundle) -> Path:
    """An entry of a new version; whoever makes one removes what nobody uses."""
    return graphs(directory, bundle, flags=frozenset({"another"})).path(ENCODER).parent


def test_entries_stay_as_long_as_an_engine_lives_and_go_when_another_is_made_after_it(bundle, directory):
    engine = OnnxRunner(bundle, precision="int8", prepared_in=directory)
    used = set(entries(directory))
    age(*used)

    another = make_another(directory, bundle)

    assert set(entries(directory)) == {*used, another}
    del engine
    shutil.rmtree(another)
    assert make_another(directory, bundle) == another
    assert entries(directory) == [another]


def test_an_entry_stays_until_the_last_engine_that_found_it_is_gone(bundle, directory):
    first, second = graphs(directory, bundle), graphs(directory, bundle)
    entry = first.path(DECODER).parent
    assert second.path(DECODER).parent == entry
    age(entry)
    del first

    another = make_another(directory, bundle)

    assert set(entries(directory)) == {entry, another}


def test_an_entry_with_which_an_engine_began_minutes_ago_stays_for_the_next_one(bundle, directory):
    entry = graphs(directory, bundle).path(DECODER).parent
    age(entry)
    graphs(directory, bundle).path(DECODER)  # used again, and no more

    another = make_another(directory, bundle)

    assert set(entries(directory)) == {entry, another}


def test_an_entry_that_is_replaced_before_it_is_locked_is_locked_as_it_is_then(bundle, directory, monkeypatch):
    graph = graphs(directory, bundle).path(DECODER)
    replaced: list[Path] = []

    class Late(PathLock):
        """What is opened is removed, and made again by another, before the lock is there."""

        def __init__(self, path: Path, *, shared: bool) -> None:
            super().__init__(path, shared=shared)
            if not replaced:
                replaced.append(path)
                path.rename(directory / "removed")
                shutil.copytree(directory / "removed", path)

    monkeypatch.setattr(prepared_graphs, "PathLock", Late)
    engine = graphs(directory, bundle)
    assert engine.path(DECODER) == graph
    assert replaced == [graph.parent]
    age(graph.parent)

    make_another(directory, bundle)

    assert graph.is_file()


def test_an_engine_whose_entry_is_being_removed_waits_and_makes_it_again(bundle, directory, monkeypatch):
    graph = graphs(directory, bundle).path(DECODER)
    removing = PathLock(graph.parent, shared=False)
    waited: list[Path] = []

    def locked_when_it_is_removed(file: Path, timeout_s: float) -> AbstractContextManager[None]:
        waited.append(file)
        shutil.rmtree(graph.parent)
        removing.release()
        return locked(file, timeout_s)

    monkeypatch.setattr(prepared_graphs, "locked", locked_when_it_is_removed)

    assert graphs(directory, bundle).path(DECODER) == graph
    assert waited == [directory / "lock"]
    assert graph.is_file()


def test_entries_that_cannot_be_loaded_cost_nothing_and_are_made_again_at_the_next_start(bundle, directory):
    OnnxRunner(bundle, precision="int8", prepared_in=directory)
    made = entries(directory)
    for entry in made:
        (entry / "graph.onnx").write_bytes(b"no graph")

    with pytest.warns(RuntimeWarning, match="cannot be loaded"):
        again = OnnxRunner(bundle, precision="int8", prepared_in=directory)

    assert (again.live_vocabulary() is not None) == HAS_INT8_PRODUCTS
    assert entries(directory) == []
    OnnxRunner(bundle, precision="int8", prepared_in=directory)  # a warning would be an error here
    assert set(entries(directory)) == set(made)


def test_who_finds_an_entry_damaged_leaves_the_one_that_another_has_made_instead(bundle, directory):
    slow, quick = graphs(directory, bundle), graphs(directory, bundle)
    graph = slow.path(DECODER)
    quick.path(DECODER)
    quick.discard(DECODER)
    assert not graph.exists()
    graphs(directory, bundle).path(DECODER)

    slow.discard(DECODER)

    open_session(graph, 1)


def test_a_damaged_entry_that_cannot_be_removed_is_waited_for_once(bundle, directory, monkeypatch):
    engine = graphs(directory, bundle)
    engine.path(DECODER)
    monkeypatch.setattr(prepared_graphs, "_LONGEST_WAIT_S", 0.05)

    with locked(directory / "lock", 10.0), pytest.warns(RuntimeWarning, match="locked by another"):
        engine.discard(DECODER)

    assert engine.path(ENCODER) == bundle.path(ENCODER)


def test_a_graph_of_the_bundle_that_cannot_be_loaded_is_the_bundle_s_error(directory, tmp_path):
    copy = Path(shutil.copytree(default_bundle_dir(), tmp_path / "copy"))
    bundle = Bundle.load(copy)
    (copy / ENCODER).write_bytes(b"no graph")

    with pytest.warns(RuntimeWarning, match="weights are not shared") as told, pytest.raises(BundleError):
        OnnxRunner(bundle, precision="int8", prepared_in=directory)

    assert len(told) == 1  # that it could not be prepared; nothing is wrong with what is


def test_an_engine_that_is_short_of_memory_leaves_the_entry_to_others(bundle, directory, monkeypatch):
    OnnxRunner(bundle, precision="int8", prepared_in=directory)
    made = set(entries(directory))

    def short_of_memory(graph: Path, num_threads: int) -> object:
        if directory in graph.parents:
            raise BundleError(f"{graph} cannot be loaded by ONNX Runtime: std::bad_alloc")
        return open_session(graph, num_threads)

    monkeypatch.setattr(runner, "open_session", short_of_memory)
    with pytest.warns(RuntimeWarning, match="bad_alloc"):
        OnnxRunner(bundle, precision="int8", prepared_in=directory)

    assert set(entries(directory)) == made
