"""Models in Marian's own format against CTranslate2, whose own converter reads the same file.

It has no SSRUs: students are compared with `marian_student.py`.
"""

import random
from dataclasses import replace
from pathlib import Path

import ctranslate2
import numpy as np
import pytest

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from export.importers.marian_npz import read_marian_model
from export.verify import reference_model
from model.config import Activation, Architecture, ModelConfig, NormPlacement, StopRule
from model.tokenizer import load_tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from tests.fakes.engine_runs import translate
from tests.parity.marian_npz_model import (
    marian_config,
    tokens_of_vocabulary,
    write_ctranslate2,
    write_marian_npz,
)
from tests.parity.marian_student import Student
from tests.parity.model_pair import is_near_tie, num_sentences

OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2)
CONFIGS = {
    "opus-mt": marian_config(norm_placement=NormPlacement.POST, activation=Activation.SWISH),
    "pre-norm, embedding norm": marian_config(embedding_norm=True),
    "apart": marian_config(target_vocab_size=50, shared_embeddings=False, tied_projection=False),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_random_sentences_get_ctranslate2s_tokens_and_scores(config: ModelConfig, tmp_path: Path) -> None:
    write_marian_npz(tmp_path, config)
    with (tmp_path / "decoder.yml").open("a") as file:
        file.write("allow-unk: true\n")
    neighbour = write_ctranslate2(tmp_path, tmp_path / "neighbour", config)
    translator = ctranslate2.Translator(str(neighbour), compute_type="float32", intra_threads=1)
    bundle = import_model(tmp_path, tmp_path / "bundle", replace(OPTIONS, name="mine"))
    (tmp_path / "scratch").mkdir()
    source = read_marian_model(tmp_path, OPTIONS, tmp_path / "scratch")
    reference = reference_model(source.config, source.state)
    tokenizer, names = load_tokenizer(bundle.directory, bundle.manifest.tokenizer), tokens_of_vocabulary(60)
    choice = random.Random(7)
    texts = [[f"w{choice.randint(14, 70)}" for _ in range(choice.randint(1, 15))] for _ in range(num_sentences(40))]

    for beam_size in (1, 4, 6):
        params = SearchParams(beam_size=beam_size, max_target_tokens=20)
        ours = translate(CpuRunner(bundle), [tokenizer.encode(" ".join(text)) for text in texts], params)
        theirs = translator.translate_batch(
            texts, beam_size=beam_size, max_decoding_length=20, min_decoding_length=0, return_scores=True
        )
        for text, (best, *_), found in zip(texts, ours, theirs, strict=True):
            if [names[token] for token in best.token_ids] == found.hypotheses[0]:
                assert best.score == pytest.approx(found.scores[0], abs=1e-4)
            else:
                assert is_near_tie(reference, bundle, tokenizer.encode(" ".join(text)), params)
    assert len({tuple(found.hypotheses[0]) for found in theirs}) >= 6


@pytest.mark.usefixtures("each_engine")
def test_a_student_with_ssrus_writes_what_its_equations_say(tmp_path: Path) -> None:
    config = marian_config(architecture=Architecture.SSRU, norm_placement=NormPlacement.POST)
    write_marian_npz(tmp_path, config)
    student = Student(dict(np.load(tmp_path / "model.npz")), config)
    bundle = import_model(tmp_path, tmp_path / "bundle", replace(OPTIONS, name="student"))
    choice = random.Random(7)
    sources = [[*(choice.randint(2, 59) for _ in range(choice.randint(1, 15))), 0] for _ in range(num_sentences(30))]

    ours = translate(CpuRunner(bundle), sources, SearchParams(beam_size=1, max_target_tokens=20))

    wanted = [student.greedy(source, 20) for source in sources]
    assert [list(best.token_ids) for best, *_ in ours] == wanted
    assert len(set(map(tuple, wanted))) >= 8
