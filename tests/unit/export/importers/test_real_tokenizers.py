"""Tokenizers of real OPUS-MT models: the rule of transformers, piece by piece, on 5,000 lines.

The rule (models/marian/tokenization_marian.py): the pieces of source.spm or target.spm, looked up in vocab.json,
unknown where they are not there, end-of-sentence behind; back through SentencePiece without the special tokens.
"""

import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import sentencepiece

from export.importers.foreign import read_settings, write_vocabulary
from model.manifest import TokenizerFiles, TokenizerKind
from model.pieces import normalize_text
from model.vocabulary_tokenizers import PieceTokenizer
from tests.fakes.own_text import own_sentences

ALPHABET = (
    "abcdefg\u00e9\u00e0\u00fc\u00df\u4e2d\u6587\u043f\u0440\U0001f600  .,;:!?'\"-\u2014()[]<>/\\@#$%&*0123456789"
    "\ufb01\u00bd\u00a0\u200b"
)
LINES = own_sentences(2_000)


class Real(NamedTuple):
    tokenizer: PieceTokenizer
    ids: dict[str, int]
    source: sentencepiece.SentencePieceProcessor
    target: sentencepiece.SentencePieceProcessor


@pytest.fixture(scope="module", params=["opus-mt-en-mg", "opus-mt-tc-big-fr-en"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Real:
    if "DRAGOMAN_TEST_MODELS" not in os.environ:
        pytest.skip("DRAGOMAN_TEST_MODELS names no folder")
    model, directory = Path(os.environ["DRAGOMAN_TEST_MODELS"]) / request.param, tmp_path_factory.mktemp("tokenizer")
    ids = read_settings(model / "vocab.json")
    write_vocabulary(directory / "vocabulary.json", sorted(ids, key=lambda token: ids[token]))
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(model / name, directory / name)
    files = TokenizerFiles(
        kind=TokenizerKind.PIECES, source="source.spm", target="target.spm", source_vocabulary="vocabulary.json"
    )
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(model / name)) for name in ("source.spm", "target.spm")
    )
    return Real(PieceTokenizer(directory, files), ids, source, target)


def some_lines() -> list[str]:
    choice = random.Random(1)
    odd = ["".join(choice.choices(ALPHABET, k=choice.randint(1, 60))) for _ in range(3_000)]
    return [*LINES, *odd]


def test_ids_of_5000_lines_are_those_of_the_rule(real):
    unknown, end = real.ids["<unk>"], real.ids["</s>"]
    for line in some_lines():
        expected = [real.ids.get(piece, unknown) for piece in real.source.encode(normalize_text(line), out_type=str)]

        assert real.tokenizer.encode(line) == ([*expected, end] if expected else [])


def test_text_comes_back_as_sentencepiece_joins_it(real):
    tokens = {number: token for token, number in real.ids.items()}
    for line in some_lines():
        ids = real.tokenizer.encode_target(line)
        if real.ids["<unk>"] in ids:
            continue

        text, spans = real.tokenizer.decode_with_spans([*ids, real.ids["</s>"], real.ids["<pad>"]])

        joined = real.source.decode_pieces([tokens[token] for token in ids])  # as transformers 5 does
        assert text == joined.replace("\u2581", " ").strip()
        assert "".join(text[begin:end] for begin, end in spans) == text


def test_some_ids_by_hand(real):
    ids = real.ids

    assert real.tokenizer.encode("the </s>")[0] in (ids["\u2581the"], ids.get("\u2581th"))
    assert real.tokenizer.encode("\u0d85") == [*real.tokenizer.encode("\u0d85")[:-2], ids["<unk>"], ids["</s>"]]
