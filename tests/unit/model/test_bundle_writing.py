"""A bundle is written whole and in one rename, over nothing but an older one."""

import json
from pathlib import Path

import pytest

from model.bundle import MANIFEST_NAME, Bundle, BundleError
from model.manifest import BUNDLE_FORMAT_VERSION
from tests.fakes.hollow_bundle import FILES, directory, manifest, write
from tests.fakes.model_repository import edit_manifest

__all__ = ["directory"]


def test_a_bundle_is_written_in_the_newest_format(directory: Path) -> None:
    assert json.loads((directory / MANIFEST_NAME).read_text())["format_version"] == BUNDLE_FORMAT_VERSION == 2


def test_a_new_bundle_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    destination = tmp_path / "bundle"
    write(destination, manifest("int8"))
    only_fp32 = {name: content for name, content in FILES.items() if not name.startswith("int8")}
    replaced = write(destination, manifest("fp32", version="2"), only_fp32)

    assert replaced.manifest.version == "2"
    assert not (destination / "int8").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_bundle_of_an_older_format_is_replaced_and_its_model_card_kept(directory: Path) -> None:
    (directory / "MODEL_CARD.md").write_text("what it can do")
    edit_manifest(directory, format_version=1)

    write(directory)

    assert Bundle.load(directory).variant("fp32").encoder == "fp32/encoder.onnx"
    assert (directory / "MODEL_CARD.md").read_text() == "what it can do"


def test_a_model_card_survives_a_new_bundle(directory: Path) -> None:
    (directory / "MODEL_CARD.md").write_text("what it can do")
    write(directory)

    assert (directory / "MODEL_CARD.md").read_text() == "what it can do"


def test_an_incomplete_bundle_is_not_written_and_the_old_one_stays(directory: Path) -> None:
    with pytest.raises(BundleError, match=r"uses 'fp32/encoder\.onnx' but does not list"):
        write(directory, manifest("fp32", version="2"), {"shared.spm": b"pieces"})

    assert Bundle.load(directory).manifest.version == "1"
    assert [path.name for path in directory.parent.iterdir()] == ["bundle"]


def test_a_directory_that_is_no_bundle_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "draft.txt").write_text("years of work")

    with pytest.raises(BundleError, match="exists and is not a bundle"):
        write(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "draft.txt").read_text() == "years of work"
