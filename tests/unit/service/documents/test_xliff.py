"""XLIFF files: sources get targets; all else stays."""

from xml.etree import ElementTree as ET

import pytest

from service.documents.markup_files import read_xliff
from service.engine.wire import FinishReason
from service.errors import InternalError
from service.records import (
    Span,
    TextFormat,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    Translation,
    WarningKind,
)
from tests.fakes.shouting import echoed, shouted

NAMESPACE = "urn:oasis:names:tc:xliff:document:"


def file_1(units: str, attributes: str = 'target-language="de"') -> str:
    return (
        f'<?xml version="1.0"?>\n<xliff version="1.2" xmlns="{NAMESPACE}1.2">\n'
        f'<file source-language="en" {attributes}><body>\n{units}\n</body></file>\n</xliff>\n'
    )


def file_2(units: str, attributes: str = 'trgLang="de"') -> str:
    return (
        f'<xliff version="2.0" srcLang="en" {attributes} xmlns="{NAMESPACE}2.0"><file id="f">{units}</file></xliff>\n'
    )


# Name, units, the same with targets.
CASES = [
    (
        "no target",
        file_1('<trans-unit id="1">\n  <source>a</source>\n</trans-unit>'),
        file_1('<trans-unit id="1">\n  <source>a</source>\n  <target state="translated">A</target>\n</trans-unit>'),
    ),
    (
        "empty target",
        file_1("<trans-unit><source>a</source><target/></trans-unit>"),
        file_1('<trans-unit><source>a</source><target state="translated">A</target></trans-unit>'),
    ),
    (
        "source in segments",
        file_1('<trans-unit><source>a</source><seg-source><mrk mtype="seg">a</mrk></seg-source></trans-unit>'),
        file_1(
            '<trans-unit><source>a</source><seg-source><mrk mtype="seg">a</mrk></seg-source>'
            '<target state="translated"><mrk mtype="seg">A</mrk></target></trans-unit>'
        ),
    ),
    (
        "new target",
        file_1('<trans-unit><source>a</source><target xml:lang="de" state="new">a</target></trans-unit>'),
        file_1('<trans-unit><source>a</source><target xml:lang="de" state="translated">A</target></trans-unit>'),
    ),
    (
        "inline elements",
        file_1('<trans-unit><source>a <g id="1">b</g><x id="2"/> &lt;</source><target></target></trans-unit>'),
        file_1(
            '<trans-unit><source>a <g id="1">b</g><x id="2"/> &lt;</source>'
            '<target state="translated">A <g id="1">B</g><x id="2"/> &lt;</target></trans-unit>'
        ),
    ),
    ("translated", file_1('<trans-unit><source>a</source><target state="final">b</target></trans-unit>'), None),
    ("target without a state", file_1("<trans-unit><source>a</source><target>b</target></trans-unit>"), None),
    ("approved", file_1('<trans-unit approved="yes"><source>a</source></trans-unit>'), None),
    ("not to be translated", file_1('<trans-unit translate="no"><source>a</source></trans-unit>'), None),
    (
        "group not to be translated",
        file_1('<group translate="no"><trans-unit><source>a</source></trans-unit></group>'),
        None,
    ),
    ("no language", file_1('<trans-unit><source>1 <x id="a"/></source></trans-unit>'), None),
    (
        "alternatives",
        file_1(
            "<trans-unit><source>a</source><alt-trans><source>b</source><target>c</target></alt-trans></trans-unit>"
        ),
        file_1(
            '<trans-unit><source>a</source><target state="translated">A</target>'
            "<alt-trans><source>b</source><target>c</target></alt-trans></trans-unit>"
        ),
    ),
    (
        "no target language",
        file_1("<trans-unit><source>a</source></trans-unit>", "").replace('"en" >', '"en">'),
        file_1('<trans-unit><source>a</source><target state="translated">A</target></trans-unit>', ""),
    ),
    (
        "version 2",
        file_2('<unit id="u"><segment>\n<source>a <pc id="1">b</pc></source>\n</segment></unit>'),
        file_2(
            '<unit id="u"><segment state="translated">\n<source>a <pc id="1">b</pc></source>\n'
            '<target>A <pc id="1">B</pc></target>\n</segment></unit>'
        ),
    ),
    (
        "version 2, initial",
        file_2('<unit><segment id="s" state="initial"><source>a</source><target>x</target></segment></unit>'),
        file_2('<unit><segment id="s" state="translated"><source>a</source><target>A</target></segment></unit>'),
    ),
    (
        "version 2, final",
        file_2('<unit><segment state="final"><source>a</source><target>x</target></segment></unit>'),
        None,
    ),
    ("version 2, ignorable", file_2("<unit><ignorable><source>a</source></ignorable></unit>"), None),
    (
        "version 2, unit not to be translated",
        file_2('<unit translate="no"><segment><source>a</source></segment></unit>'),
        None,
    ),
]


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_sources_without_a_translation_get_a_target(source, expected):
    draft = read_xliff(source, "de")

    written = shouted(draft).content
    assert written.replace('"en" target-language="de">', '"en" >') == (expected or source).replace(
        '"en" target-language="de">', '"en" >'
    )
    ET.fromstring(written)
    assert draft.write([Translation(error=InternalError("broken"))] * len(draft.units)).content == source


def test_a_unit_is_the_inline_content_of_a_source():
    draft = read_xliff(file_1('<trans-unit><source>a <g id="1">b</g></source></trans-unit>'))

    assert [(unit.text, unit.format, unit.line) for unit in draft.units] == [('a <g id="1">b</g>', TextFormat.XLIFF, 4)]


@pytest.mark.parametrize(("written", "attribute"), [(file_1, 'target-language="de"'), (file_2, 'trgLang="de"')])
def test_the_file_names_its_target_language(written, attribute):
    unit = (
        "<trans-unit><source>a</source></trans-unit>"
        if written is file_1
        else "<unit><segment><source>a</source></segment></unit>"
    )

    assert attribute in shouted(read_xliff(written(unit, ""), "de")).content
    assert 'de"' not in shouted(read_xliff(written(unit, ""), "")).content


def test_prefixed_elements_keep_their_prefix():
    source = (
        f'<x:xliff version="1.2" xmlns:x="{NAMESPACE}1.2"><x:file target-language="de"><x:body>'
        "<x:trans-unit><x:source>a</x:source></x:trans-unit></x:body></x:file></x:xliff>"
    )

    assert '</x:source><x:target state="translated">A</x:target>' in shouted(read_xliff(source, "de")).content


def test_translations_that_are_the_sources_are_targets_too():
    source = file_1("<trans-unit><source>a</source></trans-unit>")

    assert '<target state="translated">a</target>' in echoed(read_xliff(source, "de")).content


@pytest.mark.parametrize(
    "kind", [WarningKind.NOT_TRANSLATED, WarningKind.EMPTY, WarningKind.COPIED, WarningKind.NUMBERS]
)
def test_a_target_that_is_no_translation_still_has_to_be_translated(kind):
    segment = TranslatedSegment(
        source=Span(0, 1), target=Span(0, 1), hypotheses=(), warnings=(TextWarning(kind, "", Span(0, 1)),)
    )
    hypothesis = TranslatedText(text="a", score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1)
    translation = Translation(hypotheses=(hypothesis,), segments=(segment,))
    is_translated = kind is WarningKind.NUMBERS

    first = read_xliff(file_1("<trans-unit><source>a</source></trans-unit>")).write([translation]).content
    second = read_xliff(file_2("<unit><segment><source>a</source></segment></unit>")).write([translation]).content

    assert f'state="{"translated" if is_translated else "needs-translation"}"' in first
    assert f'state="{"translated" if is_translated else "initial"}"' in second
    assert len(read_xliff(first).units) == len(read_xliff(second).units) == (not is_translated)


@pytest.mark.parametrize("source", ["<html/>", '<xliff version="3.0"/>', "<xliff/>"])
def test_what_is_no_xliff_is_refused(source):
    with pytest.raises(ValueError, match=r"no XLIFF 1\.2 or 2"):
        read_xliff(source)
