"""gettext PO: entries without a translation get one; all other lines stay."""

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.documents.app_strings import read_po
from service.errors import InternalError
from service.records import TextFormat, Translation
from tests.fakes.shouting import answered, echoed, shouted, translation_of

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'

# Name, entry, the same in capital letters.
CASES = [
    ("message", 'msgid "a"\nmsgstr ""\n', '#, fuzzy\nmsgid "a"\nmsgstr "A"\n'),
    ("translated", 'msgid "a"\nmsgstr "b"\n', None),
    ("fuzzy", '#, fuzzy\nmsgid "a"\nmsgstr "b"\n', None),
    ("obsolete", '#~ msgid "a"\n#~ msgstr ""\n', None),
    (
        "comments",
        '# t\n#. x\n#: a.c:1\nmsgid "a"\nmsgstr ""\n',
        '# t\n#. x\n#: a.c:1\n#, fuzzy\nmsgid "a"\nmsgstr "A"\n',
    ),
    ("flags", '#, c-format\nmsgid "a"\nmsgstr ""\n', '#, fuzzy, c-format\nmsgid "a"\nmsgstr "A"\n'),
    ("fuzzy without text", '#, fuzzy\nmsgid "a"\nmsgstr ""\n', '#, fuzzy\nmsgid "a"\nmsgstr "A"\n'),
    ("previous", '#| msgid "b"\nmsgid "a"\nmsgstr ""\n', '#, fuzzy\n#| msgid "b"\nmsgid "a"\nmsgstr "A"\n'),
    ("context", 'msgctxt "c"\nmsgid "a"\nmsgstr ""\n', '#, fuzzy\nmsgctxt "c"\nmsgid "a"\nmsgstr "A"\n'),
    ("quotes", 'msgid "a \\"b\\" \\\\c"\nmsgstr ""\n', '#, fuzzy\nmsgid "a \\"b\\" \\\\c"\nmsgstr "A \\"B\\" \\\\C"\n'),
    (
        "lines",
        'msgid ""\n"a\\n"\n"b\\n"\nmsgstr ""\n',
        '#, fuzzy\nmsgid ""\n"a\\n"\n"b\\n"\nmsgstr ""\n"A\\n"\n"B\\n"\n',
    ),
    ("no language", 'msgid "42"\nmsgstr ""\n', None),
    ("no end of line", 'msgid "a"\nmsgstr ""', '#, fuzzy\nmsgid "a"\nmsgstr "A"'),
    (
        "plural",
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n',
        '#, fuzzy\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "A"\nmsgstr[1] "B"\n',
    ),
    ("translated plural", 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\nmsgstr[1] "d"\n', None),
    ("comment behind", 'msgid "a"\nmsgstr ""\n\n# end\n', '#, fuzzy\nmsgid "a"\nmsgstr "A"\n\n# end\n'),
]


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_the_lines_of_new_translations_change(source, expected, line_end):
    before = (HEADER + 'msgid "x"\nmsgstr "y"\n\n' + source).replace("\n", line_end)
    after = (HEADER + 'msgid "x"\nmsgstr "y"\n\n' + (expected or source)).replace("\n", line_end)

    assert shouted(read_po(before, "de")) == (after, ())


@pytest.mark.parametrize("source", [case[1] for case in CASES if case[2] is None])
def test_a_file_with_nothing_to_do_comes_back_as_it_was(source):
    assert echoed(read_po(HEADER + source, "fr")).content == HEADER + source


def test_the_header_gets_the_language_and_the_forms_of_plurals():
    header = 'msgid ""\nmsgstr ""\n"Project: p\\n"\n"Language: \\n"\n\n'
    source = header + 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    written = polib.pofile(shouted(read_po(source, "pl")).content)

    assert written.metadata["Language"] == "pl"
    assert written.metadata["Plural-Forms"].startswith("nplurals=3;")
    assert written[0].msgstr_plural == {0: "A", 1: "B", 2: "B"}


def test_a_language_without_plurals_has_one_form():
    source = HEADER.replace("nplurals=2", "nplurals=1") + 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n'

    assert polib.pofile(shouted(read_po(source, "ja")).content)[0].msgstr_plural == {0: "B"}


def test_plurals_of_a_language_without_known_forms_stay_with_a_notice():
    source = 'msgid ""\nmsgstr ""\n"Language: xx\\n"\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n'
    written = shouted(read_po(source, "xx"))

    assert written.content == source
    (notice,) = written.notices
    assert (notice.line, notice.source) == (5, "a")
    assert "write Plural-Forms into the header" in notice.message


def test_a_message_with_tags_is_html():
    draft = read_po(HEADER + 'msgid "a <b>c</b>"\nmsgstr ""\n\nmsgid "1 < a"\nmsgstr ""\n')

    assert [unit.format for unit in draft.units] == [TextFormat.HTML, TextFormat.PLAIN]


@pytest.mark.parametrize(
    ("message", "is_html"),
    [
        ("Save <b>all</b> files", True),
        ("one<br>two <img src='x'/>", True),
        ("Usage: prog <file>", False),
        ("Press </Enter>", False),
        ("<b>all</b> files & quit", False),
        ("<b>a</b>\\n  -h  help\\n", False),
        ("<b>a</b>\\n", True),
    ],
)
def test_only_a_message_of_one_line_with_tags_in_pairs_is_html(message, is_html):
    [unit] = read_po(HEADER + f'msgid "{message}"\nmsgstr ""\n').units

    assert (unit.format is TextFormat.HTML) is is_html


def test_long_translations_are_wrapped_as_gettext_does_unless_the_file_has_longer_lines():
    long = "word " * 40
    wrapped = answered(read_po(HEADER + 'msgid "a"\nmsgstr ""\n'), long)
    unwrapped = answered(read_po(HEADER + f'msgid "{long}"\nmsgstr ""\n'), long)

    assert max(map(len, wrapped.splitlines())) <= 80
    assert f'msgstr "{long}"\n' in unwrapped
    assert polib.pofile(wrapped)[0].msgstr == long


def test_a_failed_entry_and_one_without_a_translation_stay():
    source = HEADER + 'msgid "a"\nmsgstr ""\n\nmsgid "b"\nmsgstr ""\n'
    draft = read_po(source)

    assert draft.write([Translation(error=InternalError("broken")), translation_of("")]).content == source


def test_what_is_no_po_file_is_refused():
    with pytest.raises(ValueError, match="no gettext PO file: Syntax error"):
        read_po("hello\n")


_ENTRIES = st.lists(st.sampled_from([case[1] for case in CASES]), max_size=6)


@given(_ENTRIES, st.sampled_from(["\n", "\n\n", "\n# c\n\n"]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_polib_reads_what_is_written(entries, between, has_header):
    source = (HEADER if has_header else "") + between.join(entries)
    draft = read_po(source, "de")
    failed = draft.write([Translation(error=InternalError("broken"))] * len(draft.units))

    assert failed.content == source
    before, after = polib.pofile(source + "\n"), polib.pofile(shouted(draft).content + "\n")
    assert [entry.msgid for entry in after] == [entry.msgid for entry in before]
    new = [entry for entry, old in zip(after, before, strict=True) if entry.msgstr != old.msgstr]
    assert [entry.msgstr for entry in new] == [entry.msgid.upper() for entry in new]
    assert all(entry.fuzzy for entry in new)
