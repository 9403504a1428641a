"""What of a record is translated."""

from pathlib import Path

import pytest

from service.bulk.formats import JsonLines, Parquet


@pytest.mark.parametrize("file_format", [JsonLines("text", "translation"), Parquet("text", "translation")])
@pytest.mark.parametrize(("value", "text"), [(None, ""), ("", ""), ("None", "None"), (0, "0"), (1.5, "1.5")])
def test_no_value_is_no_text_and_a_number_is_one(file_format, value, text):
    assert file_format.text({"text": value}) == text


def test_null_in_a_json_file_stays_there_and_has_an_empty_translation(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": null}\n')
    file_format = JsonLines("text", "translation")
    (part,) = file_format.plan(source, 10)

    records = file_format.read(source, part)

    assert [file_format.text(record) for record in records] == [""]
    assert file_format.encode(records, [""]) == b'{"text": null, "translation": ""}\n'
