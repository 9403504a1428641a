"""`python -m export.golden`: a bundle gets other golden sentences, whole or not at all."""

import shutil
from pathlib import Path

import pytest

from export.golden import add_golden
from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle
from model.manifest import Manifest
from tests.fakes.tiny_model import SENTENCES, write_tiny_checkpoint


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of random weights, with a golden sentence."""
    directory = tmp_path_factory.mktemp("exported")
    source = ExportSource.load(write_tiny_checkpoint(directory / "checkpoint"))
    export_bundle(source, directory / "bundle", ExportOptions(precisions=("fp32",)), Samples())
    return add_golden(Bundle.load(directory / "bundle"), SENTENCES[:1]).directory


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Bundle:
    return Bundle.load(Path(shutil.copytree(exported, tmp_path / "bundle")))


def sources(bundle: Bundle) -> list[str]:
    return [sentence.source for sentence in bundle.golden_sentences("fp32")]


def test_other_sentences_take_the_place_of_the_old(bundle: Bundle, tmp_path: Path) -> None:
    bundle.path("MODEL_CARD.md").write_text("what it can do")
    before = sources(bundle)

    changed = add_golden(bundle, SENTENCES[1:3])

    assert before == SENTENCES[:1]
    assert sources(changed) == SENTENCES[1:3]
    assert changed.manifest.files.keys() == bundle.manifest.files.keys()
    assert changed.path("MODEL_CARD.md").read_text() == "what it can do"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_kill_on_the_way_leaves_the_bundle_as_it_was(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(manifest: Manifest) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "to_json", kill)
        with pytest.raises(KeyboardInterrupt):
            add_golden(bundle, SENTENCES[1:3])

    assert sources(Bundle.load(bundle.directory)) == SENTENCES[:1]
