"""What is found in a model repository, and in which order it is tried."""

import errno
import os
import random
from pathlib import Path
from typing import NoReturn

import pytest

from model.bundle import BundleError
from service.config import EngineConfig, ModelsConfig, ServerConfig
from service.models.repository import (
    BundleChecker,
    RepositoryError,
    bundle_source,
    scan_included,
    scan_repository,
    version_order,
)
from tests.fakes.echo_bundle import write_echo_bundle

IN_ORDER = ["1", "1.0", "1.2", "1.9", "1.10", "2", "2-rc", "10", "2026-11-20", "2026-11-21", "a", "b1", "b2", "b10"]


def test_versions_are_in_the_order_in_which_people_count():
    mixed = random.Random(0).sample(IN_ORDER, len(IN_ORDER))

    assert sorted(mixed, key=version_order) == IN_ORDER


def test_names_come_in_order_each_with_its_highest_version_first(tmp_path):
    for path in ["b/2", "b/10", "a/1", "b/.staging", ".hidden/1", "empty"]:
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "README").write_text("no model")
    (tmp_path / "a" / "notes.txt").write_text("no version")

    found = scan_repository(tmp_path)

    assert {name: [one.version for one in candidates] for name, candidates in found.items()} == {
        "a": ["1"],
        "b": ["10", "2"],
    }
    assert list(found) == ["a", "b"]
    assert found["b"][0].label == "b/10"


def test_link_that_cannot_be_followed_stops_no_other_and_is_refused_for_that(tmp_path):
    """Like one into a directory that may not be entered, for root as well: it names more than a name may have."""
    for path in ["a/1", "z/1"]:
        (tmp_path / path).mkdir(parents=True)
    for path in ["a/2", "far"]:
        (tmp_path / path).symlink_to("x" * 300)
    for path in ["a/3", "gone"]:
        (tmp_path / path).symlink_to("nothing")

    found = scan_repository(tmp_path)

    assert {name: [one.label for one in candidates] for name, candidates in found.items()} == {
        "a": ["a/2", "a/1"],
        "far": ["far"],
        "z": ["z/1"],
    }
    for candidate in (found["a"][0], found["far"][0]):
        with pytest.raises(BundleError, match=f"/{candidate.label} cannot be read: File name too long$"):
            BundleChecker(ServerConfig())(candidate)


def test_bundle_without_a_directory_for_its_version_is_named(tmp_path):
    write_echo_bundle(tmp_path / "a")
    (tmp_path / "a" / "int8").mkdir()

    (candidate,) = scan_repository(tmp_path)["a"]
    with pytest.raises(BundleError, match=r"/a is a bundle, and bundles are at NAME/VERSION/; move it one level down"):
        BundleChecker(ServerConfig())(candidate)


def test_file_of_a_bundle_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    write_echo_bundle(tmp_path / "a" / "1", name="a", version="1")
    monkeypatch.setattr("model.bundle.file_entry", refuse)  # root may read everything

    (candidate,) = scan_repository(tmp_path)["a"]
    with pytest.raises(BundleError, match=r"/a/1/.* cannot be read: Permission denied$"):
        BundleChecker(ServerConfig())(candidate)


def test_source_without_a_candidate_is_an_error_that_says_what_is_missing(tmp_path):
    (tmp_path / "name").mkdir()
    with pytest.raises(RepositoryError, match=r"is empty; put bundles at .*/NAME/VERSION/"):
        scan_repository(tmp_path)
    with pytest.raises(RepositoryError, match="there is no included model in"):
        scan_included(tmp_path)
    with pytest.raises(RepositoryError, match="/none cannot be read: No such file or directory"):
        scan_repository(tmp_path / "none")


def test_included_bundles_have_the_names_of_their_directories_and_the_english_german_one_is_the_default(tmp_path):
    for name in ["fr-de", "de-en", ".en-de.draft", "no-bundle"]:
        (tmp_path / name).mkdir()
        if name != "no-bundle":
            (tmp_path / name / "manifest.json").write_text("{}")

    found = scan_included(tmp_path)  # where the default is not; it is looked for all the same

    assert [(one.name, one.label, one.is_default, one.is_required) for (one,) in found.values()] == [
        ("en-de", "en-de", True, True),
        ("de-en", "de-en", False, True),
        ("fr-de", "fr-de", False, True),
    ]
    assert found["en-de"][0].manifest_sha256 == ""


def test_bundles_come_from_where_the_settings_say_or_with_the_package(tmp_path):
    (tmp_path / "a" / "1").mkdir(parents=True)

    assert list(bundle_source(ServerConfig())()) == ["en-de", "de-en"]
    assert list(bundle_source(ServerConfig(models=ModelsConfig(directory=tmp_path)))()) == ["a"]
    (candidate,) = bundle_source(ServerConfig(engine=EngineConfig(bundle=tmp_path)))()[""]
    assert (candidate.directory, candidate.name, candidate.version) == (tmp_path, "", "")


@pytest.fixture
def bundle(tmp_path):
    """A bundle's directory in the repository `tmp_path`."""
    directory = tmp_path / "a" / "1"
    (directory / "int8").mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    (directory / "int8" / "weights.data").write_bytes(b"1234")
    return directory


@pytest.mark.parametrize("action", ["same size", "add", "remove", "replace", "manifest"])
def test_any_change_of_a_file_is_seen(tmp_path, bundle, action):
    before = scan_repository(tmp_path)["a"][0]
    assert before == scan_repository(tmp_path)["a"][0]
    weights = bundle / "int8" / "weights.data"

    match action:
        case "same size":
            weights.write_bytes(b"4321")
            os.utime(weights, ns=(1, 1))  # a clock too coarse for a test that is quick
        case "add":
            (bundle / "int8" / "more").write_bytes(b"")
        case "remove":
            weights.unlink()
        case "replace":
            (bundle / "draft").write_bytes(b"4321")
            (bundle / "draft").replace(weights)
        case "manifest":
            (bundle / "manifest.json").write_text("[]")
    after = scan_repository(tmp_path)["a"][0]

    assert before.fingerprint != after.fingerprint
    assert (before.manifest_sha256 != after.manifest_sha256) is (action == "manifest")
