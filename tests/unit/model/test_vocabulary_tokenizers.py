"""Tokenizers whose ids stand in vocabulary files."""

import json
from pathlib import Path

import pytest

from model.manifest import TokenizerFiles, TokenizerKind
from model.pieces import SentencePieces
from model.tokenizer import SupportsTokens, load_tokenizer
from model.vocabulary_tokenizers import PieceTokenizer
from tests.conftest import ENGLISH

SPACES = TokenizerFiles(
    kind=TokenizerKind.SPACES,
    source="",
    source_vocabulary="source.json",
    target_vocabulary="target.json",
    source_suffix=(),
)


def write_vocabularies(directory: Path, source: list[str], target: list[str] | None = None) -> None:
    (directory / "source.json").write_text(json.dumps(source), encoding="utf-8")
    if target is not None:
        (directory / "target.json").write_text(json.dumps(target), encoding="utf-8")


@pytest.fixture
def pieces(tiny_tokenizer_path: Path) -> SentencePieces:
    return SentencePieces.load(tiny_tokenizer_path)


@pytest.fixture
def tokenizer(tmp_path: Path, tiny_tokenizer_path: Path, pieces: SentencePieces) -> PieceTokenizer:
    """A vocabulary that begins with end-of-sentence, unlike that of the SentencePiece model, and ends with <pad>."""
    (tmp_path / "source.spm").write_bytes(tiny_tokenizer_path.read_bytes())
    found = sorted({piece for sentence in ENGLISH for piece in pieces.encode(sentence)})
    write_vocabularies(tmp_path, ["</s>", "<unk>", ">>de<<", *found, "<pad>"])
    files = TokenizerFiles(kind=TokenizerKind.PIECES, source="source.spm", source_vocabulary="source.json")
    return PieceTokenizer(tmp_path, files)


class TestPieces:
    def test_text_survives_the_round_trip_with_the_vocabulary_s_ids(self, tokenizer):
        for sentence in ENGLISH:
            ids = tokenizer.encode(sentence)

            assert ids[-1] == 0
            assert tokenizer.encode_target(sentence) == ids[:-1]
            assert tokenizer.decode(ids) == tokenizer.read_back(sentence) == sentence

    @pytest.mark.parametrize("text", ["</s>", ">>de<<", "<unk> x", "a </s> b", "<pad>"])
    def test_text_that_looks_like_a_control_token_does_not_become_it(self, tokenizer, text):
        ids = tokenizer.encode(text)[:-1]

        assert 0 not in ids
        assert 2 not in ids
        assert tokenizer.vocab_size - 1 not in ids

    def test_a_piece_outside_the_vocabulary_is_unknown(self, tokenizer):
        assert 1 in tokenizer.encode("\u4e2d")
        assert tokenizer.read_back("\u4e2d") is None
        assert "\u2047" in tokenizer.decode(tokenizer.encode("\u4e2d"))

    @pytest.mark.parametrize("text", [*ENGLISH, "  two  blanks \t and\x00a \u4e2d\u6587 control "])
    def test_spans_go_through_the_text(self, tokenizer, text):
        ids, spans = tokenizer.encode_with_spans(text)
        decoded, places = tokenizer.decode_with_spans([*ids, len(ids) + 10_000])

        assert ids == tokenizer.encode(text)
        assert [place for span in spans for place in span] == sorted(place for span in spans for place in span)
        assert (spans[-1], places[-1]) == ((len(text), len(text)), (len(decoded), len(decoded)))
        assert "".join(decoded[begin:end] for begin, end in places) == decoded

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{}", "is no list of tokens"),
            ("[1]", "is no list of tokens"),
            ("[", "is no JSON"),
            ("[]", "no token '<unk>'"),
        ],
    )
    def test_a_damaged_vocabulary_is_refused_by_name(self, tmp_path, tokenizer, content, message):
        (tmp_path / "source.json").write_text(content)
        files = TokenizerFiles(kind=TokenizerKind.PIECES, source="source.spm", source_vocabulary="source.json")

        with pytest.raises(ValueError, match=rf"source\.json.*{message}"):
            load_tokenizer(tmp_path, files)


class TestSpaces:
    @pytest.fixture
    def letters(self, tmp_path: Path) -> SupportsTokens:
        write_vocabularies(tmp_path, ["<blank>", "<s>", "</s>", "x", "yy", "<unk>"], ["</s>", "a", "b", "<unk>"])
        return load_tokenizer(tmp_path, SPACES)

    def test_tokens_stand_between_spaces(self, letters):
        assert letters.encode(" x yy\tq </s>") == [3, 4, 5, 5]
        assert letters.decode([1, 2, 2, 0, 99]) == "a b b"
        assert letters.encode_target("b a") == [2, 1]
        assert letters.encode("  ") == []

    def test_spans_go_through_the_text(self, letters):
        ids, spans = letters.encode_with_spans("  x  yy ")

        assert (ids, spans) == ([3, 4], [(0, 3), (3, 7)])
        assert letters.decode_with_spans([1, 3, 2, 0]) == ("a \u2047  b", [(0, 1), (1, 4), (4, 6), (6, 6)])
