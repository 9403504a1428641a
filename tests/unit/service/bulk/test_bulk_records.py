"""What of a record is translated, and how it comes out."""

from pathlib import Path

import pytest

from service.bulk.lines import JsonLines, text_of
from tests.fakes.bulk_jobs import job_of, translated


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), ("", ""), ("None", "None"), (0, "0"), (1.5, "1.5"), ("ä".encode(), "ä")]
)
def test_no_value_is_no_text_and_a_number_is_one(value, text):
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "kind"), [('["a", "b"]', "a list"), ('{"a": "b"}', "an object"), ("true", "a boolean")]
)
def test_value_that_is_no_text_is_refused_before_anything_is_translated(tmp_path: Path, value: str, kind: str):
    source = tmp_path / "in.jsonl"
    source.write_text(f'{{"text": "a"}}\n{{"text": {value}}}\n')

    with pytest.raises(ValueError, match=rf"in\.jsonl, line 2: the field 'text': {kind} is neither text nor a number"):
        job_of(source, tmp_path / "out.jsonl")


def test_null_in_a_json_file_stays_there_and_has_an_empty_translation(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": null}\n')
    file_format = JsonLines("text", "translation")
    (part,) = file_format.plan(source, 10)

    assert list(file_format.texts(source, [part])) == [""]
    assert file_format.encode(source, part, [""]) == b'{"text": null, "translation": ""}\n'


@pytest.mark.parametrize(
    "fields",
    [
        '"n": 1e400',
        '"n": 1234567890.12345678901234567890',
        '"n": 1' + "0" * 5_000,
        '"n": -0.0,"n":1.50, "n" : [1E5, {"a":2}]',
        '"s": "\\u00e4 \\/ \\ud800"',
    ],
)
@pytest.mark.parametrize("end", ["", " ", "\t\r"])
def test_other_fields_of_an_object_keep_their_bytes(tmp_path: Path, fields: str, end: str):
    source = tmp_path / "in.jsonl"
    source.write_text(f' {{"text":"ä", {fields}{end}}}{end}\n' * 2, newline="")

    line = f' {{"text":"ä", {fields}, "translation": "Ä"}}\n'
    assert translated(source).decode() == line * 2


def test_number_in_a_json_file_is_translated_as_it_is_written(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": 1.50}\n{"text": 1e400}\n')
    file_format = JsonLines("text", "translation")

    assert list(file_format.texts(source, list(file_format.plan(source, 10)))) == ["1.50", "1e400"]
