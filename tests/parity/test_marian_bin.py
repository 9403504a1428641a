"""Marian's binary files: the same numbers as in the .npz file, and Firefox' students as they come."""

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from model.config import EOS_ID, Architecture, NormPlacement, StopRule
from model.manifest import AlignmentHeads
from model.tokenizer import load_tokenizer
from service.engine.cpu.native.runner import NativeRunner
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from tests.conftest import ENGLISH
from tests.fakes.engine_runs import translate
from tests.parity.ctranslate2_model import pieces
from tests.parity.marian_bin_model import INTGEMM8, INTGEMM8_NEW, shortlist_bytes, write_bin
from tests.parity.marian_npz_model import marian_config, write_marian_npz
from tests.parity.marian_student import Student

OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2, name="student")
CONFIG = marian_config(architecture=Architecture.SSRU, norm_placement=NormPlacement.POST)


def sentences(number: int, size: int) -> list[list[int]]:
    choice = random.Random(7)
    return [[*(choice.randint(2, size - 1) for _ in range(choice.randint(1, 15))), 0] for _ in range(number)]


def tokens(runner: CpuRunner | NativeRunner, sources: list[list[int]], *, use_shortlist: bool) -> list[list[int]]:
    search = SearchParams(beam_size=1, max_target_tokens=20, use_shortlist=use_shortlist)
    return [list(best.token_ids) for best, *_ in translate(runner, sources, search)]


@pytest.mark.parametrize("integers", [0, INTGEMM8, INTGEMM8_NEW], ids=["float32", "intgemm8", "intgemm8 of marian-nmt"])
def test_a_binary_file_is_the_model_that_was_converted(tmp_path: Path, integers: int) -> None:
    write_marian_npz(tmp_path, CONFIG)
    (tmp_path / "decoder.yml").unlink()
    arrays = write_bin(tmp_path / "model.npz", tmp_path / "model.bin", integers=integers)
    (tmp_path / "model.npz").unlink()
    options = replace(OPTIONS, vocabularies=(tmp_path / "vocab0.yml",))
    sources = sentences(30, 60)

    bundle = import_model(tmp_path, tmp_path / "bundle", options)
    found = tokens(CpuRunner(bundle), sources, use_shortlist=False)

    wanted = [Student(arrays, CONFIG).greedy(source, 20) for source in sources]
    assert found == wanted
    assert len(set(map(tuple, wanted))) >= 8


@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("vocabularies", [["vocab"], ["srcvocab", "trgvocab"]], ids=["shared", "apart"])
def test_what_firefox_serves_is_imported_with_its_shortlist(
    tmp_path: Path, tiny_tokenizer_path: Path, vocabularies: list[str]
) -> None:
    """All files are packed, and `metadata.json` says the languages."""
    config = replace(
        CONFIG,
        vocab_size=len(pieces(tiny_tokenizer_path)),
        target_vocab_size=len(pieces(tiny_tokenizer_path)),
        shared_embeddings=len(vocabularies) == 1,
        eos_id=EOS_ID,
    )
    (tmp_path / "plain").mkdir()
    write_marian_npz(tmp_path / "plain", config)
    arrays = write_bin(tmp_path / "plain" / "model.npz", tmp_path / "plain" / "model.bin", integers=INTGEMM8)
    choice = random.Random(3)
    lists = [choice.sample(range(4, config.vocab_size), 2) for _ in range(config.vocab_size)]
    packed = {
        "model.ende.intgemm.alphas.bin": (tmp_path / "plain" / "model.bin").read_bytes(),
        "lex.50.50.ende.s2t.bin": shortlist_bytes(6, lists),
        **{f"{name}.ende.spm": tiny_tokenizer_path.read_bytes() for name in vocabularies},
    }
    (tmp_path / "ende").mkdir()
    for name, content in packed.items():
        (tmp_path / "ende" / f"{name}.gz").write_bytes(gzip.compress(content))
    languages = {"sourceLanguage": "en", "targetLanguage": "de", "architecture": "tiny"}
    (tmp_path / "ende" / "metadata.json").write_text(json.dumps(languages))

    bundle = import_model(tmp_path / "ende", tmp_path / "bundle", ImportOptions())

    manifest, tokenizer = bundle.manifest, load_tokenizer(bundle.directory, bundle.manifest.tokenizer)
    assert (manifest.source_language, manifest.target_language) == ("en", "de")
    assert (manifest.decoding.beam_size, manifest.decoding.stop_rule) == (1, StopRule.MARIAN)
    assert manifest.alignment == AlignmentHeads(heads=((1, 0),))
    sources = [tokenizer.encode(text) for text in ENGLISH[:20]]
    student, runner = Student(arrays, config), NativeRunner(bundle)
    assert tokens(runner, sources, use_shortlist=False) == [student.greedy(source, 20) for source in sources]
    wanted = [
        student.greedy(source, 20, [*range(6), *source, *(token for one in source for token in lists[one])])
        for source in sources
    ]
    assert tokens(runner, sources, use_shortlist=True) == wanted
    assert len(set(map(tuple, wanted))) >= 5
