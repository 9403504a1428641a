"""One bundle for all languages of a model that came through CTranslate2 or from OPUS-MT, against CTranslate2."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import pytest
from ctranslate2.converters import TransformersConverter
from transformers import MarianTokenizer

from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from export.importers.language_tokens import _NLLB_CODES
from model.bundle import Bundle
from model.config import StopRule
from model.tokenizer import load_tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import Job, JobResult, SearchParams
from tests.fakes.engine_runs import run
from tests.fakes.own_text import own_sentences
from tests.parity.marian_model import MarianModel, write_marian
from tests.parity.multilingual_checkpoints import SHAPES, Family, train_pieces, write_checkpoint

NUM_SENTENCES, LONGEST = 12, 12  # few: near-ties depend on the CPU
PAIRS = (("en", "de"), ("fr", "en"))
OPTIONS = ImportOptions(source_language="en", target_language="de", profile=StopRule.CTRANSLATE2)
PIECES, SETTINGS = "sentencepiece.bpe.model", "tokenizer_config.json"


def checkpoint(directory: Path) -> Path:
    """An NLLB checkpoint whose tokenizer names its languages, as published ones do."""
    pieces = train_pieces(directory / "pieces.model")
    # None ends right behind its language: beam search of CTranslate2 would drop it.
    write_checkpoint(directory / "theirs", pieces, Family.NLLB, SHAPES[0], seed=3, ends=False)
    first = 401  # behind the pieces
    tokens = {first + number: token for number, token in enumerate([*_NLLB_CODES.split(), "<mask>"])}
    kinds = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    added = {str(number): {"content": token, "special": True, **kinds} for number, token in tokens.items()}
    settings = {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "added_tokens_decoder": added}
    (directory / "theirs" / SETTINGS).write_text(json.dumps(settings))
    return directory / "theirs"


def ours(
    bundle: Bundle, texts: Sequence[str], beam_size: int
) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Source, prefix and target tokens of texts, the languages of the pairs in turn, in one batch."""
    tokenizer = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)
    vocabulary = tokenizer._vocabularies.source.tokens  # type: ignore[union-attr]
    pairs = [tokenizer.between(*PAIRS[number % len(PAIRS)]) for number in range(len(texts))]
    params = SearchParams(beam_size=beam_size, max_target_tokens=LONGEST)
    jobs = [
        Job(id=number, source_ids=tuple(one.encode(text)), params=params, prefix_ids=tuple(one.target_prefix))
        for number, (one, text) in enumerate(zip(pairs, texts, strict=True))
    ]
    outcomes = run(EngineLoop(CpuRunner(bundle)), jobs)
    results = [outcome for job in jobs if isinstance(outcome := outcomes[job.id], JobResult)]
    found = [list(result.hypotheses[0].token_ids) for result in results]
    ids = [job.source_ids for job in jobs], [job.prefix_ids or () for job in jobs], found
    sources, prefixes, targets = ([[vocabulary[token] for token in one] for one in each] for each in ids)
    return sources, prefixes, targets


@pytest.mark.usefixtures("each_engine")
def test_a_conversion_translates_all_pairs_in_one_batch_as_ctranslate2_does(tmp_path):
    """Converters of other families read no tokenizer of today's transformers."""
    theirs = checkpoint(tmp_path)
    converter = TransformersConverter(str(theirs), copy_files=[PIECES, SETTINGS])
    directory = Path(converter.convert(str(tmp_path / "converted")))
    bundle = import_model(directory, tmp_path / "bundle", OPTIONS)
    direct = import_model(theirs, tmp_path / "direct", OPTIONS)
    translator = ctranslate2.Translator(str(directory), device="cpu", compute_type="float32", intra_threads=1)
    texts = own_sentences(NUM_SENTENCES, seed=7)

    for beam_size in (1, 4):
        sources, prefixes, targets = ours(bundle, texts, beam_size)

        results = translator.translate_batch(
            sources, target_prefix=prefixes, beam_size=beam_size, max_decoding_length=LONGEST, min_decoding_length=0
        )
        assert targets == [result.hypotheses[0] for result in results]
        assert (sources, prefixes, targets) == ours(direct, texts, beam_size)
        assert len({tuple(target) for target in targets}) > len(PAIRS)  # they depend on their sources
    assert sources[0][-1] == "</s>"
    assert len({source[0] for source in sources}) == len({prefix[0] for prefix in prefixes}) == len(PAIRS)


def write_opus(directory: Path, tokenizer: Path) -> MarianModel:
    """Write a MarianMT model from English into a group of languages, two of whose tokens mean one language."""
    model = write_marian(directory, tokenizer)
    for number, code in enumerate(("deu", "fra", "cmn_Hans", "zho", "pt_br", "eng"), start=20):
        model.tokens[number] = f">>{code}<<"
    (model.directory / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(model.tokens)}))
    named = {"source_lang": "en", "target_lang": "gmw", "separate_vocabs": False}
    (model.directory / SETTINGS).write_text(json.dumps(named))
    return model


def test_a_model_of_opus_writes_the_language_that_a_request_asks_for(tmp_path, tiny_tokenizer_path):
    opus = write_opus(tmp_path, tiny_tokenizer_path)
    bundle = import_model(opus.directory, tmp_path / "bundle", ImportOptions(target_language="de"))
    manifest = bundle.manifest
    tokenizer = load_tokenizer(bundle.directory, manifest.tokenizer)
    with warnings.catch_warnings(action="ignore"):  # it recommends a normaliser that it does not call
        theirs = MarianTokenizer.from_pretrained(str(opus.directory))
    text = "The old man lost the keys."

    codes = {one.token: one.code for one in manifest.tokenizer.languages if one.is_target}
    assert codes.pop(">>cmn_Hans<<") == "cmn-Hans"
    assert codes == {">>deu<<": "de", ">>fra<<": "fr", ">>zho<<": "zh", ">>pt_br<<": "pt-BR", ">>eng<<": "en"}
    assert [one.code for one in manifest.tokenizer.languages if one.is_source] == ["en"]
    assert manifest.languages == ("en", "de")
    exact = import_model(opus.directory, tmp_path / "exact", ImportOptions(target_language=">>cmn_Hans<<"))
    assert exact.manifest.languages == ("en", "cmn-Hans")  # `zh` means the same and has a shorter token
    for token, code in codes.items():
        assert tokenizer.between("en", code).encode(text) == theirs(f"{token} {text}")["input_ids"]
    german, unknown = tokenizer.between("en", "de"), opus.tokens.index("<unk>")
    assert 21 not in german.encode(f">>fra<< {text}")
    assert german.decode([21, unknown]).strip() == "\u2047"
