"""Lines in and lines out."""

import io
import json

from service.cli.translate import Line, as_json_line, from_bytes, from_texts, plain, scored, translated_lines
from service.engine.wire import FinishReason
from service.errors import InternalError, InvalidInput
from service.models.codec import untranslated
from service.records import TranslatedText, Translation


def translated(*texts: str) -> Translation:
    hypotheses = tuple(
        TranslatedText(text=text, score=-0.25 * rank, finish_reason=FinishReason.LENGTH, target_tokens=3)
        for rank, text in enumerate(texts, start=1)
    )
    return Translation(hypotheses=hypotheses, source_tokens=2)


FAILED = Translation(error=InternalError("the model produced non-finite scores"))


def test_line_ends_and_byte_order_mark_are_no_text():
    lines = list(from_bytes(io.BytesIO("\ufeffone\r\ntwo\n\n three\u2028\x0c \nfour".encode()), "file"))

    assert [line.text for line in lines] == ["one", "two", "", " three\u2028\x0c ", "four"]
    assert [line.number for line in lines] == [1, 2, 3, 4, 5]


def test_bytes_that_are_no_utf8_cost_only_their_line():
    lines = list(from_bytes(io.BytesIO(b"good\nb\xffd\nfine\n"), "file"))

    assert [line.text for line in lines] == ["good", "", "fine"]
    assert isinstance(lines[1].error, InvalidInput)
    assert "not valid UTF-8 at byte 1" in str(lines[1].error)


def test_arguments_with_stray_bytes_are_errors_too():
    good, bad = from_texts(["good", "b\udcffd"])

    assert good.error is None
    assert "not valid UTF-8" in str(bad.error)


def test_plain_is_exactly_one_line_for_one_line():
    assert plain(Line(1, "x"), translated("eins", "zwei")) == "eins"
    assert plain(Line(1, "x"), translated("a\nb\u2028c")) == "a b c"
    assert plain(Line(1, ""), Translation(hypotheses=(untranslated(""),))) == ""
    assert plain(Line(1, "x"), FAILED) == ""


def test_text_of_several_lines_keeps_them():
    assert plain(Line(1, "one\n\n- two"), translated("eins\n\n- zwei")) == "eins\n\n- zwei"


def test_a_line_that_is_no_text_has_its_own_error_and_costs_nothing():
    sent: list[str] = []

    def translate(texts):
        for text in texts:
            sent.append(text)
            yield translated(text.upper())

    good, bad = translated_lines(from_texts(["x", "b\udcffd"]), translate)

    assert sent == ["x", ""]
    assert (good[0].number, good[1].text) == (1, "X")
    assert isinstance(bad[1].error, InvalidInput)


def test_scored_lists_every_hypothesis_with_its_line_number():
    assert scored(Line(7, "x"), translated("eins", "zwei")) == "7\t-0.2500\teins\n7\t-0.5000\tzwei"
    assert scored(Line(8, ""), Translation(hypotheses=(untranslated(""),))) == "8\t0.0000\t"
    assert scored(Line(8, ""), Translation()) == "8\t\t"
    assert scored(Line(9, "x"), FAILED) == "9\t\t"


def test_json_holds_source_hypotheses_and_error():
    row = json.loads(as_json_line(Line(1, "über"), translated("eins")))
    failed = json.loads(as_json_line(Line(2, "x"), FAILED))

    assert row["source"] == "über"
    assert row["hypotheses"] == [{"text": "eins", "score": -0.25, "finish_reason": "length", "target_tokens": 3}]
    assert (row["source_tokens"], row["error"]) == (2, None)
    assert failed["error"] == {"kind": "InternalError", "message": "the model produced non-finite scores"}
    assert failed["hypotheses"] == []
