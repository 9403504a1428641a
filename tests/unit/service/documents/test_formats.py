"""Which format a file has, and what is said where it cannot be read."""

import sys
from pathlib import Path

import pytest

from service.documents.formats import DocumentFormat, format_of, read_file
from tests.fakes.shouting import shouted

SOURCES = {
    DocumentFormat.TEXT: ("a", "A"),
    DocumentFormat.HTML: ("<p>a</p>", "<p>A</p>"),
    DocumentFormat.XML: ("<r>a</r>", "<r>A</r>"),
    DocumentFormat.XLIFF: (
        '<xliff version="1.2"><trans-unit><source>a</source></trans-unit></xliff>',
        '<xliff version="1.2"><trans-unit><source>a</source><target state="translated">A</target></trans-unit></xliff>',
    ),
    DocumentFormat.MARKDOWN: ("# a", "# A"),
    DocumentFormat.SRT: ("1\n00:00:01,0 --> 00:00:02,0\na", "1\n00:00:01,0 --> 00:00:02,0\nA"),
    DocumentFormat.VTT: ("WEBVTT\n\n00:01.000 --> 00:02.000\na", "WEBVTT\n\n00:01.000 --> 00:02.000\nA"),
    DocumentFormat.PO: ('msgid "a"\nmsgstr ""', '#, fuzzy\nmsgid "a"\nmsgstr "A"'),
}


@pytest.mark.parametrize("document_format", SOURCES)
def test_every_format_has_a_reader(document_format):
    source, expected = SOURCES[document_format]

    assert shouted(read_file(source.encode(), document_format)).content == expected.encode()
    assert shouted(read_file(f"\ufeff{source}".encode(), document_format)).content == f"\ufeff{expected}".encode()


@pytest.mark.parametrize(
    ("name", "document_format"),
    [
        ("a.txt", DocumentFormat.TEXT),
        ("a.HTM", DocumentFormat.HTML),
        ("strings.xml", DocumentFormat.XML),
        ("a.de.xlf", DocumentFormat.XLIFF),
        ("README.md", DocumentFormat.MARKDOWN),
        ("film.srt", DocumentFormat.SRT),
        ("film.vtt", DocumentFormat.VTT),
        ("messages.pot", DocumentFormat.PO),
    ],
)
def test_the_suffix_names_the_format(name, document_format):
    assert format_of(Path(name)) is document_format


@pytest.mark.parametrize("name", ["a", "a.xyz"])
def test_another_suffix_is_refused_with_a_way_out(name):
    with pytest.raises(ValueError, match="--format"):
        format_of(Path(name))


@pytest.mark.parametrize(
    ("document_format", "module", "package"),
    [
        (DocumentFormat.MARKDOWN, "mdit_py_plugins.footnote", "mdit"),
        (DocumentFormat.PO, "polib", "polib"),
        (DocumentFormat.YAML, "yaml", "yaml"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch, document_format, module, package):
    for name in [name for name in sys.modules if name.startswith("service.documents.")]:
        if name.rpartition(".")[2] in {"markdown", "markdown_inline"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr("service.documents.markdown", raising=False)

    with pytest.raises(ValueError, match=rf"need {package}.*`pip install .*polib pyyaml` \(extra `documents`\)"):
        read_file(b"a", document_format)
