"""Tokenizers of real OPUS-MT models against transformers' own, on 5,000 lines.

What looks like a control token is text here, and a control token there: the lines have none.
"""

import os
import random
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from transformers import MarianTokenizer

from export.importers.foreign import read_settings, write_vocabulary
from model.manifest import TokenizerFiles, TokenizerKind
from model.vocabulary_tokenizers import PieceTokenizer
from tests.fakes.own_text import own_sentences

ALPHABET = (
    "abcdefg\u00e9\u00e0\u00fc\u00df\u4e2d\u6587\u043f\u0440\U0001f600  .,;:!?'\"-\u2014()[]<>/\\@#$%&*0123456789"
    "\ufb01\u00bd\u00a0\u200b"
)
LINES = own_sentences(100)


class Real(NamedTuple):
    tokenizer: PieceTokenizer
    ids: dict[str, int]
    theirs: Any  # of transformers


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
    with warnings.catch_warnings(action="ignore"):  # it recommends a normaliser that it does not call
        theirs = MarianTokenizer.from_pretrained(str(model))
    return Real(PieceTokenizer(directory, files), ids, theirs)


def some_lines() -> list[str]:
    choice = random.Random(1)
    odd = ["".join(choice.choices(ALPHABET, k=choice.randint(1, 60))) for _ in range(900)]
    return [*LINES, *odd]


def test_ids_of_a_thousand_lines_are_those_of_transformers(real):
    for line in some_lines():
        expected = real.theirs(line)["input_ids"] if real.theirs.tokenize(line) else []

        assert real.tokenizer.encode(line) == expected, repr(line)


def test_text_comes_back_as_transformers_joins_it(real):
    for line in some_lines():
        ids = real.tokenizer.encode_target(line)
        if real.ids["<unk>"] in ids:
            continue

        text, spans = real.tokenizer.decode_with_spans([*ids, real.ids["</s>"], real.ids["<pad>"]])

        assert text == real.theirs.decode([*ids, real.ids["</s>"]], skip_special_tokens=True).strip()
        assert "".join(text[begin:end] for begin, end in spans) == text
