"""Text to ids and back."""

import unicodedata

import pytest
import sentencepiece

from model.config import BOS_ID, EOS_ID, PAD_ID
from model.pieces import normalize_text
from model.tokenizer import Tokenizer
from tests.conftest import ENGLISH


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer_path)


@pytest.mark.parametrize("text", ENGLISH)
def test_known_text_survives_the_round_trip_among_special_ids(tokenizer, text):
    ids = tokenizer.encode(text)

    assert ids[-1] == EOS_ID
    assert tokenizer.decode([BOS_ID, *ids, PAD_ID, PAD_ID]) == text


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\x00\x1f", "\u2009"])
def test_blank_text_has_no_tokens(tokenizer, blank):
    assert tokenizer.encode(blank) == tokenizer.sample(blank, alpha=0.2) == []


def test_a_character_is_read_back_or_unknown(tokenizer):
    assert tokenizer.read_back(ENGLISH[0]) == ENGLISH[0]
    assert tokenizer.read_back("\U0001f600") is None


def test_control_characters_are_those_of_unicode():
    controls = "".join(map(chr, range(0x110000)))
    changed = [char for char in controls if normalize_text(f"a{char}a") == "a a" and char != " "]

    assert changed == [char for char in controls if unicodedata.category(char) == "Cc"]


@pytest.mark.promise("E4")
@pytest.mark.parametrize("content", [b"", b"not a model", b"\x0a\xff\xff\xff\xff"])
def test_broken_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.spm"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"broken\.spm"):
        Tokenizer.load(path)


@pytest.mark.promise("E5")
def test_other_special_ids_are_refused(tmp_path):
    path = tmp_path / "other.spm"
    with path.open("wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(ENGLISH), model_writer=out, vocab_size=80, minloglevel=2
        )

    with pytest.raises(ValueError, match=r"pad, unk, bos, eos = \(-1, 0, 1, 2\), this project needs \(0, 1, 2, 3\)"):
        Tokenizer.load(path)


class TestSpans:
    """Where tokens stand in the text that the caller gave."""

    @pytest.mark.parametrize(
        "text",
        [
            "The children play.",
            "  two  blanks \t and\x00a control ",
            "\ufb01ne \u00bd \uff21\u0301 e\u0301\u00e9 \ufdfa",
            "I love you \U0001f600\u2764\ufe0f!",
            "x\u200by\u00adz",
            "",
            " \n ",
        ],
    )
    def test_ids_are_those_of_encode_and_spans_go_through_the_text(self, tokenizer, text):
        ids, spans = tokenizer.encode_with_spans(text)

        assert ids == tokenizer.encode(text)
        assert len(spans) == len(ids)
        if ids:
            places = [place for span in spans for place in span]
            assert places == sorted(places)
            assert spans[-1] == (len(text), len(text))
            covered = "".join(text[begin:end] for begin, end in spans)
            assert normalize_text(covered) == normalize_text(text)

    @pytest.mark.parametrize("text", ["The children play.", "A 😀 b", "Kaffee ohne Milch", ""])
    def test_decoded_text_is_that_of_decode_and_spans_go_through_it(self, tokenizer, text):
        ids = [BOS_ID, *tokenizer.encode(text), PAD_ID]

        decoded, spans = tokenizer.decode_with_spans(ids)

        assert decoded == tokenizer.decode(ids)
        assert len(spans) == len(ids)
        assert "".join(decoded[begin:end] for begin, end in spans) == decoded
        assert [
            end - begin for (begin, end), token in zip(spans, ids, strict=True) if token in (BOS_ID, EOS_ID, PAD_ID)
        ] == ([0, 0, 0] if text else [0, 0])
