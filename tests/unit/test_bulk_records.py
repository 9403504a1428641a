"""What of a record is translated, and how it comes out."""

from pathlib import Path

import pytest

from service.bulk.lines import JsonLines, text_of


@pytest.mark.parametrize(("value", "text"), [(None, ""), ("", ""), ("None", "None"), (0, "0"), (1.5, "1.5")])
def test_no_value_is_no_text_and_a_number_is_one(value, text):
    assert text_of(value) == text


def test_null_in_a_json_file_stays_there_and_has_an_empty_translation(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": null}\n')
    file_format = JsonLines("text", "translation")
    (part,) = file_format.plan(source, 10)

    assert list(file_format.texts(source, [part])) == [""]
    assert file_format.encode(source, part, [""]) == b'{"text": null, "translation": ""}\n'
