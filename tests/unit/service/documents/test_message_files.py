"""Files of messages: values are translated, everything else stays, and what is written is what its readers read."""

import json

import pytest
import yaml

from service.documents.draft import Part, report_of
from service.documents.formats import DocumentFormat, format_of, read_file
from tests.fakes.packages import texts_of
from tests.fakes.shouting import answered, echoed, shouted


def draft(name: str, text: str, target: str = "") -> Part:
    return read_file(text.encode(), DocumentFormat(name), target).parts[""]


JSON = '{\n  "a": "The cat",  "n": 3, "list": ["one", ""],\n  "deep": {"b": "say \\"hi\\" {name}\\n"}, "c": "42"\n}\n'
YAML = """# a comment
title: The cat   # another
"quoted": "say \\"hi\\""
single: 'it''s'
folded: >-
  one line
  and more

  two
literal: |
    first line
      second line

on: yes
ref: &a text
again: *a
list: [one, 'two', {k: v}]
"""
STRINGS = '/* A "note" */\n"key" = "The cat";\n// x = "y";\nbare.key = "say \\"hi\\" %@\\n";\n'
PROPERTIES = "# a note\n! and one\nkey = The cat\nother.key:one \\\n    two\\u00e9\nempty=\nargument = it''s {0}\n"


@pytest.mark.parametrize(
    ("name", "source", "found", "written"),
    [
        (
            "json",
            JSON,
            ["The cat", "one", 'say "hi" {name}\n'],
            JSON.replace("The cat", "THE CAT").replace('"one"', '"ONE"')
            .replace('say \\"hi\\" {name}', 'SAY \\"HI\\" {NAME}'),
        ),
        ("json", '{"a": "caf\\u00e9"}', ["café"], '{"a": "CAF\\u00c9"}'),
        (
            "arb",
            '{"@@locale": "en", "a": "The cat", "@a": {"description": "about it"}}',
            ["The cat"],
            '{"@@locale": "en", "a": "THE CAT", "@a": {"description": "about it"}}',
        ),
        (
            "yaml",
            YAML,
            [
                *("The cat", 'say "hi"', "it's", "one line and more\ntwo", "first line\n  second line\n"),
                *("text", "one", "two", "v"),
            ],
            YAML.replace("The cat", "THE CAT").replace('"say \\"hi\\""', '"SAY \\"HI\\""').replace("'it''s'", "'IT''S'")
            .replace("one line\n  and more", "ONE LINE AND MORE").replace("  two\n", "  TWO\n")
            .replace("first line", "FIRST LINE").replace("second line", "SECOND LINE").replace("&a text", "&a TEXT")
            .replace("[one, 'two', {k: v}]", "[ONE, 'TWO', {k: V}]"),
        ),
        (
            "strings",
            STRINGS,
            ["The cat", 'say "hi" %@\n'],
            STRINGS.replace("The cat", "THE CAT").replace('say \\"hi\\"', 'SAY \\"HI\\"'),
        ),
        (
            "properties",
            PROPERTIES,
            ["The cat", "one twoé", "it''s {0}"],
            PROPERTIES.replace("The cat", "THE CAT").replace("one \\\n    two\\u00e9", "ONE TWO\\u00c9")
            .replace("it''s", "IT''S"),
        ),
        ("csv", 'id,text\n1,A cat\n2,"a ""b"", c"\n', ["A cat", 'a "b", c'], 'id,text\n1,A CAT\n2,"A ""B"", C"\n'),
        ("csv", "key;en;de\nk;The cat;\nl;one;eins\n", ["The cat"], "key;en;de\nk;The cat;THE CAT\nl;one;eins\n"),
        ("csv", "source\ttarget\r\nThe cat\t\r\n", ["The cat"], "source\ttarget\r\nThe cat\tTHE CAT\r\n"),
        ("csv", "The cat", ["The cat"], "THE CAT"),
    ],
)  # fmt: skip
def test_values_are_translated_and_everything_else_stays(name, source, found, written):
    read = draft(name, source, "de" if name == "csv" else "")

    assert texts_of(read) == found
    assert echoed(read).content == source
    assert shouted(read).content == written


@pytest.mark.parametrize("value", ["2024-13-01", "=", "<<", "0x_"])
def test_a_value_of_yaml_that_only_looks_like_a_date_or_a_number_stays(value):
    file = draft("yaml", f"a: cat\nb: {value}\n")

    assert shouted(file).content == f"a: CAT\nb: {value}\n"
    assert answered(file, value) == f'a: "{value}"\nb: {value}\n'


@pytest.mark.parametrize("written", ["cat", "'cat'", '"cat"', "|\n  cat", "|-\n  cat", ">\n  cat"])
def test_every_translation_is_read_again_as_it_is_from_yaml(written):
    for new in ("plain", "yes", "12", "a: b", "a # b", "- a", "[a", "it's", 'say "x"', "a\nb", " a ", "*a", "ü"):
        result = answered(draft("yaml", f"k: {written}\nl: 1\n"), new)
        flow = answered(draft("yaml", "k: [cat, 1]\n"), new)

        said = yaml.safe_load(result)["k"]
        assert (said.strip() if written[0] in "|>" else said) == (new.strip() if written[0] in "|>" else new)
        assert yaml.safe_load(result)["l"] == 1
        assert yaml.safe_load(flow) == {"k": [new, 1]}


def test_key_that_is_the_language_becomes_that_of_the_target():
    assert shouted(draft("yaml", "en:\n  a: cat\n", "de")).content == "de:\n  a: CAT\n"
    assert shouted(draft("json", '{"en": {"a": "cat"}}', "de")).content == '{"de": {"a": "CAT"}}'
    assert (
        shouted(draft("arb", '{"@@locale": "en", "a": "cat"}', "pt-BR")).content == '{"@@locale": "pt_BR", "a": "CAT"}'
    )
    assert shouted(draft("json", '{"en": "cat"}', "de")).content == '{"en": "CAT"}'


def test_branches_of_a_choice_are_messages_of_their_own():
    source = json.dumps({"a": "{n, plural, =0{no cats} one{# cat} other {# cats in {place}}}"})
    read = draft("json", source)

    assert texts_of(read) == ["no cats", "{number} cat", "{number} cats in {place}"]
    written = answered(read, "keine Katzen", "{number} Katze", "in {place} {number} Katzen")
    assert json.loads(written)["a"] == "{n, plural, =0{keine Katzen} one{# Katze} other {in {place} # Katzen}}"


def test_choice_within_a_sentence_stays_and_is_said():
    source = json.dumps({"a": "You have {n, plural, one{a cat} other{cats}}."})
    read = draft("json", source)

    written = read.write([])
    assert (texts_of(read), written.content) == ([], source)
    (line,) = report_of(read.units, [], written.notices)
    assert (line["kind"], line["line"]) == ("not_translated", 1)
    assert line["source"] == "You have {n, plural, one{a cat} other{cats}}."
    assert "stands within a sentence" in line["message"]


def test_forms_of_plurals_of_apple_are_translated_and_their_types_stay():
    source = (
        '<?xml version="1.0"?><!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/x.dtd"><plist><dict>'
        "<key>cats</key><dict><key>NSStringLocalizedFormatKey</key><string>%#@cats@</string><key>cats</key><dict>"
        "<key>NSStringFormatValueTypeKey</key><string>lld</string><key>one</key><string>a cat &amp; %lld</string>"
        "<key>other</key><string>%lld cats</string></dict></dict></dict></plist>"
    )
    read = draft("stringsdict", source)

    assert texts_of(read) == ["a cat & %lld", "%lld cats"]
    assert answered(read, "eine < & %lld", "%lld Katzen") == source.replace("a cat &amp;", "eine &lt; &amp;").replace(
        "%lld cats", "%lld Katzen"
    )


def test_resources_of_android_keep_references_and_marks_and_have_their_escapes():
    source = (
        '<resources xmlns:xliff="x"><string name="a">The <b>cat\\\'s</b>\\n%1$s</string>'
        '<string name="b">@string/a</string>'
        '<string name="c" translatable="false">no</string><string name="d"><![CDATA[<p>Some text</p>]]></string>'
        '<plurals name="e"><item quantity="one">one cat</item></plurals><item name="f" type="id">id</item>'
        '<string name="g">By <xliff:g id="n">Dragoman</xliff:g></string>'
        '<string name="h">\n  A line\n  and "one"\n</string>'
        '<string name="i">"  it\'s  \\u00e9 "</string></resources>'
    )
    read = draft("xml", source)

    assert texts_of(read) == [
        "The <b>cat's</b>\n%1$s",
        "<p>Some text</p>",
        "one cat",
        'By <xliff:g  translate="no" id="n">Dragoman</xliff:g>',
        "A line and one",
        "  it's  é ",
    ]
    written = answered(
        read, "L'<b a='b'>chat</b>\n%1$s", '<p>"x" d\'un</p>', "@one", texts_of(read)[3].replace("By", "De l'"), *"xy"
    )
    assert "<string name=\"a\">L\\'<b a='b'>chat</b>\\n%1$s</string>" in written
    assert '<![CDATA[<p>\\"x\\" d\\\'un</p>]]>' in written
    assert '<item quantity="one">\\@one</item>' in written
    assert 'De l\\\' <xliff:g id="n">Dragoman</xliff:g>' in written
    assert '<string name="h">\n  x\n</string><string name="i">"y"</string>' in written


def test_escapes_are_characters_or_nothing():
    source = '{"a": "cat \\ud83d\\ude00", "b": "dog \\ud83d"}'
    assert texts_of(draft("json", source)) == ["cat \U0001f600", "dog \ufffd"]
    assert texts_of(draft("properties", "a = cat \\ud83d\\ude00")) == ["cat \U0001f600"]
    assert echoed(draft("json", source)).content == source


def test_apostrophes_of_a_pattern_are_doubled():
    assert answered(draft("properties", "a = by {0}"), "d'{0}") == "a = d''{0}"
    assert answered(draft("properties", "a = by me"), "d'un \U0001f600\n ") == "a = d'un \\ud83d\\ude00\\n "
    assert answered(draft("properties", "a = ü by me"), " ü") == "a = \\ ü"


def test_file_in_utf_16_comes_back_in_utf_16():
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        read = read_file(mark + STRINGS.encode(encoding), DocumentFormat.STRINGS)

        assert texts_of(read)[0] == "The cat"
        assert shouted(read).content.startswith(mark + '/* A "note"'.encode(encoding))


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("json", "{", "no JSON"),
        ("json", "[" * 100_000, "nested too deeply|no JSON"),
        ("yaml", "a: [", "no YAML"),
        ("strings", '"a" = "b"', "line 1 is no entry"),
        ("stringsdict", "<a>", "no well-formed XML"),
        ("csv", 'a,b\n"c,d', "line 2 has a quote"),
    ],
)
def test_file_that_is_not_what_it_is_said_to_be_is_refused_in_one_line(name, source, message):
    with pytest.raises(ValueError, match=message) as error:
        draft(name, source)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "words"), [("a.pdf", "save it as docx"), ("a.DOC", "old format"), ("a.xls", "xlsx")])
def test_format_that_is_not_read_is_refused_with_what_to_do(name, words):
    from pathlib import Path

    with pytest.raises(ValueError, match=words):
        format_of(Path(name))
