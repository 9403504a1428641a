"""Packages of Argos Translate: what an import makes of them, and the archives that it refuses."""

import json
import stat
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.importers.argos import model_directory
from export.importers.command import import_model
from export.importers.ctranslate2 import read_ctranslate2
from export.importers.foreign import ForeignModelError, ImportOptions
from export.source import ExportSource
from tests.fakes.tiny_model import state_of, tiny_config, tiny_model
from tests.parity.ctranslate2_model import write_ctranslate2_model

METADATA = {"from_code": "en", "to_code": "pb", "package_version": "1.9", "argos_version": "1.9"}
FOLDER = "translate-en_pb-1_9"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> dict[str, bytes]:
    return package_files(tmp_path_factory.mktemp("argos") / "model", tiny_tokenizer_path)


def package_files(directory: Path, tokenizer: Path) -> dict[str, bytes]:
    """The files of a package by their names in its folder."""
    model = tiny_model(tiny_config(vocab_size=120))
    write_ctranslate2_model(model.config, state_of(model), tokenizer, directory)
    found = {f"model/{path.name}": path.read_bytes() for path in directory.iterdir()}
    found["metadata.json"] = json.dumps(METADATA).encode()
    return found | {"sentencepiece.model": tokenizer.read_bytes(), "stanza/en/tokenize/ewt.pt": b"pickle"}


def pack(path: Path, files: dict[str, bytes], change: Callable[[zipfile.ZipFile], Any] = lambda _: None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir(FOLDER)
        for name, content in files.items():
            archive.writestr(f"{FOLDER}/{name}", content)
        change(archive)
    return path


def read(path: Path, scratch: Path) -> ExportSource:
    """Read a package and return what it says; its weights are gone with the context."""
    scratch.mkdir(exist_ok=True)
    with model_directory(path, scratch) as directory:
        assert not list(directory.glob("stanza*"))
        return read_ctranslate2(directory, ImportOptions(), scratch)


def refusal(path: Path, scratch: Path) -> str:
    with pytest.raises(ForeignModelError) as refused:
        read(path, scratch)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert not list(scratch.glob(".import*"))
    return str(refused.value)


def test_a_package_says_its_name_version_languages_and_search(files, tmp_path):
    source = read(pack(tmp_path / "any.argosmodel", files), tmp_path / "scratch")

    assert (source.name, source.version) == ("translate-en_pb", "1.9")
    assert (source.source_language, source.target_language) == ("en", "pt-BR")
    assert (source.decoding.beam_size, source.decoding.length_penalty) == (4, 0.2)
    assert (source.tokenizer.source_suffix, source.tokenizer.target_prefix) == ((), ())


def test_a_package_becomes_a_bundle_that_begins_translations_with_its_target_prefix(files, tmp_path):
    tokens = json.loads(files["model/shared_vocabulary.json"])
    tokens[100] = "__pb__"
    changed = {
        "metadata.json": json.dumps(METADATA | {"target_prefix": "__pb__"}).encode(),
        "model/shared_vocabulary.json": json.dumps(tokens).encode(),
    }
    bundle = import_model(pack(tmp_path / "x.argosmodel", files | changed), tmp_path / "a" / "bundle", ImportOptions())

    assert bundle.manifest.tokenizer.target_prefix == ("__pb__",)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["bundle"]

    del changed["model/shared_vocabulary.json"]
    path = pack(tmp_path / "y.argosmodel", files | changed)
    assert "the vocabulary has no token '__pb__'" in refusal(path, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"type": "sbd"}, "type is 'sbd', only 'translate' is supported"),
        ({"package_version": "../../x"}, "package_version is '../../x', it must be a plain name"),
        ({"from_code": ["en"]}, "from_code is ['en'], it must be a plain name"),
        ({"to_code": ""}, "to_code is '', it must be a plain name"),
        ({"from_code": None}, "has no from_code"),
    ],
)
def test_metadata_that_is_not_understood_is_refused(files, tmp_path, metadata, message):
    described = {name: value for name, value in (METADATA | metadata).items() if value is not None}
    path = pack(tmp_path / "x.argosmodel", files | {"metadata.json": json.dumps(described).encode()})

    assert message in refusal(path, tmp_path / "scratch")


def link(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo(f"{FOLDER}/model/config.txt")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(entry, "/etc/passwd")


def again(archive: zipfile.ZipFile) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(f"{FOLDER}/metadata.json", b"{}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda archive: archive.writestr("/etc/cron.d/x", b""), "the entry '/etc/cron.d/x' leads out of the archive"),
        (lambda archive: archive.writestr(f"{FOLDER}/../../x", b""), "/../../x' leads out of the archive"),
        (lambda archive: archive.writestr("..\\x", b""), "leads out of the archive"),
        (lambda archive: archive.writestr(f"{FOLDER}//x", b""), "is no plain name"),
        (lambda archive: archive.writestr(f"{FOLDER}/x", b"", zipfile.ZIP_LZMA), "another method than deflate"),
        (lambda archive: archive.writestr("other/metadata.json", b"{}"), "has 2 folders with metadata.json"),
        (link, "/model/config.txt' is a link"),
        (again, "/metadata.json' is there twice"),
    ],
)
def test_tricks_with_paths_are_refused(files, tmp_path, change, message):
    path = pack(tmp_path / "x.argosmodel", files, change)

    assert message in refusal(path, tmp_path / "scratch")


def test_sizes_that_are_too_large_or_lies_are_refused(files, tmp_path):
    bomb = pack(tmp_path / "bomb.argosmodel", files | {"model/config.json": bytes(64 << 20)})
    tracemalloc.start()
    assert "bytes, at most" in refusal(bomb, tmp_path / "scratch")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()

    name = f"{FOLDER}/model/config.json".encode()
    content = bytearray(pack(tmp_path / "lie.argosmodel", files).read_bytes())
    at = content.rindex(name) - 46 + 24  # the size in the archive's directory
    for size in (5, 100_000):
        content[at : at + 4] = size.to_bytes(4, "little")
        (tmp_path / "lie.argosmodel").write_bytes(content)
        assert "lie.argosmodel" in refusal(tmp_path / "lie.argosmodel", tmp_path / "scratch")
