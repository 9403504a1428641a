"""SRT and WebVTT: cues keep all but their words; sentences are translated as one."""

import re

import pytest
import srt
from hypothesis import given, settings
from hypothesis import strategies as st

from service.documents import subtitles
from service.errors import InternalError
from service.records import Translation
from tests.fakes.shouting import answered, echoed, shouted, translation_of


def cue(number: int, *lines: str, begin: int | None = None) -> str:
    """A cue of SRT; each ends a tenth of a second before the next one begins."""
    start = number if begin is None else begin
    return f"{number}\n00:00:{start:02},000 --> 00:00:{start:02},900\n" + "".join(f"{line}\n" for line in lines) + "\n"


# Name, lines of the cues, the same in capital letters.
SRT = [
    ("one line", [["a cat."]], [["A CAT."]]),
    ("two lines", [["a cat", "and dogs."]], [["A CAT", "AND DOGS."]]),
    ("sentence over two cues", [["a cat"], ["sees me."]], [["A CAT"], ["SEES ME."]]),
    ("sentences apart", [["A cat."], ["A dog."]], [["A CAT."], ["A DOG."]]),
    ("sentence that ends in a cue", [["A cat. A"], ["dog ran."]], [["A CAT. A"], ["DOG RAN."]]),
    ("speakers", [["- a?", "- b."]], [["- A?", "- B."]]),
    ("second speaker", [["a?", "- b."]], [["A?", "- B."]]),
    ("italics", [["<i>a cat.</i>"]], [["<i>A CAT.</i>"]]),
    ("italics on each line", [["<i>a cat</i>", "<i>and dogs.</i>"]], [["<i>A CAT</i>", "<i>AND DOGS.</i>"]]),
    ("italics over lines", [["<i>a cat", "and dogs.</i>"]], [["<i>A CAT", "AND DOGS.</i>"]]),
    ("italics inside", [["a <i>cat</i> ran."]], [["A <i>CAT</i> RAN."]]),
    ("italics over cues", [["<i>a cat</i>"], ["<i>sees me.</i>"]], [["<i>A CAT</i>"], ["<i>SEES ME.</i>"]]),
    ("tag without an end", [["<i>a cat."]], [["<i>A CAT."]]),
    ("font", [['<font color="#ff0000">a cat.</font>']], [['<font color="#ff0000">A CAT.</font>']]),
    ("position", [["{\\an8}a cat."]], [["{\\an8}A CAT."]]),
    ("styles of ASS", [["a {\\i1}cat{\\i0} ran."]], [["A {\\i1}CAT{\\i0} RAN."]]),
    ("song", [["♪ la la ♪"], ["♪ lo lo ♪"]], [["♪ LA LA ♪"], ["♪ LO LO ♪"]]),
    ("sound", [["[door closes]"], ["a cat."]], [["[DOOR CLOSES]"], ["A CAT."]]),
    ("no language", [["..."], ["42"], ["♪"]], [["..."], ["42"], ["♪"]]),
    ("less than", [["I <3 a & b."]], [["I <3 A & B."]]),
    ("no text", [[], ["a."]], [[], ["A."]]),
    ("dash in a text", [["a - b."]], [["A - B."]]),
    ("marks of speakers", [[">> a?", ">> b."]], [[">> A?", ">> B."]]),
    ("mark of a subject", [[">> a.", ">>> b."]], [[">> A.", ">>> B."]]),
    ("marks without spaces", [[">>a?", ">>b."]], [[">>A?", ">>B."]]),
    ("second speaker with a mark", [["a?", ">> b."]], [["A?", ">> B."]]),
    ("marks in italics", [["<i>>> a?</i>", "<i>>> b.</i>"]], [["<i>>> A?</i>", "<i>>> B.</i>"]]),
    ("mark and a number", [[">> 3 cats."]], [[">> 3 CATS."]]),
    ("line breaks of ASS", [["a cat\\Nand dogs."]], [["A CAT\\NAND DOGS."]]),
    ("line breaks of ASS and a file's", [["a cat\\Nand", "dogs."]], [["A CAT\\NAND\\NDOGS."]]),
    ("codes behind line breaks", [["{\\an8}A:\\NB\\N{\\c&Hff&}C"]], [["{\\an8}A:\\NB\\N{\\c&Hff&}C"]]),
]


def file_of(cues: list[list[str]]) -> str:
    return "".join(cue(number, *lines) for number, lines in enumerate(cues, start=1))


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in SRT], ids=[case[0] for case in SRT])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_srt_keeps_all_but_the_words(source, expected, line_end):
    text = file_of(source).replace("\n", line_end)
    draft = subtitles.read(text, has_references=False)

    assert echoed(draft).content == text
    assert shouted(draft) == (file_of(expected).replace("\n", line_end), ())


VTT_HEAD = "WEBVTT - a title\nKind: captions\n\nSTYLE\n::cue { color: red }\n\nNOTE a note\nof two lines\n\n"
VTT = [
    (
        "settings",
        "00:01.000 --> 00:02.000 align:start line:0%\na cat.\n",
        "00:01.000 --> 00:02.000 align:start line:0%\nA CAT.\n",
    ),
    ("name", "intro one\n00:01.000 --> 00:02.000\na.\n", "intro one\n00:01.000 --> 00:02.000\nA.\n"),
    ("voice", "00:01.000 --> 00:02.000\n<v Anna Lee>a.\n", "00:01.000 --> 00:02.000\n<v Anna Lee>A.\n"),
    ("class", "00:01.000 --> 00:02.000\na <c.red.big>b</c>.\n", "00:01.000 --> 00:02.000\nA <c.red.big>B</c>.\n"),
    ("times", "00:01.000 --> 00:02.000\na <00:01.500>b.\n", "00:01.000 --> 00:02.000\nA <00:01.500>B.\n"),
    ("references", "00:01.000 --> 00:02.000\na &amp; b &lt; c.\n", "00:01.000 --> 00:02.000\nA &amp; B &lt; C.\n"),
    ("hours", "01:00:01.000 --> 01:00:02.000\na.\n", "01:00:01.000 --> 01:00:02.000\nA.\n"),
    ("note behind", "00:01.000 --> 00:02.000\na.\n\nNOTE b\n\n", "00:01.000 --> 00:02.000\nA.\n\nNOTE b\n\n"),
    ("no end of line", "00:01.000 --> 00:02.000\na.", "00:01.000 --> 00:02.000\nA."),
    ("empty cue", "00:01.000 --> 00:02.000\n\nb\n", "00:01.000 --> 00:02.000\n\nb\n"),
]


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in VTT], ids=[case[0] for case in VTT])
def test_vtt_keeps_all_but_the_words(source, expected):
    draft = subtitles.read(VTT_HEAD + source, has_references=True)

    assert echoed(draft).content == VTT_HEAD + source
    assert shouted(draft) == (VTT_HEAD + expected, ())


def test_a_sentence_over_cues_is_one_unit():
    draft = subtitles.read(file_of([["I saw <i>the</i>"], ["cat. And"], ["then."], ["You."]]), has_references=False)

    assert [(unit.text, unit.line) for unit in draft.units] == [
        ('I saw <g id="1">the</g> cat. And then.', 3),
        ("You.", 15),
    ]


@pytest.mark.parametrize(
    "second",
    [cue(2, "- b", begin=2), cue(2, "b", begin=9), cue(2, "<i>b</i>"), cue(2, "[b]"), cue(2, "♪ b")],
    ids=["speaker", "pause", "style", "sound", "song"],
)
def test_a_new_speaker_a_pause_and_another_style_end_a_sentence(second):
    assert len(subtitles.read(cue(1, "a") + second, has_references=False).units) == 2


@pytest.mark.parametrize(
    ("lines", "units"),
    [
        (["Salt", "Sugar", "Flour"], ["Salt", "Sugar", "Flour"]),
        (["Yes", "No"], ["Yes", "No"]),
        (["Chapter One", "The Storm"], ["Chapter One", "The Storm"]),
        (["Directed by", "Anna Berg", "Ben Holm"], ["Directed by Anna Berg Ben Holm"]),
        (["We went to", "Rome with", "Anna"], ["We went to Rome with Anna"]),
        (["Salz", "Zucker", "Mehl und Hefe"], ["Salz", "Zucker", "Mehl und Hefe"]),
        (["Kapitel Eins", "Der Sturm"], ["Kapitel Eins", "Der Sturm"]),
        (["Das Haus der", "Großmutter", "Anna"], ["Das Haus der Großmutter Anna"]),
        (["1. Milk", "2. Bread", "3. Salt"], ["1. Milk", "2. Bread", "3. Salt"]),
        (["The cat was", "Anna said nothing."], ["The cat was Anna said nothing."]),
    ],
)
def test_lines_of_a_list_are_translated_apart(lines, units):
    draft = subtitles.read(file_of([lines]), has_references=False)

    assert [unit.text for unit in draft.units] == units
    assert shouted(draft).content == file_of([[line.upper() for line in lines]])


def test_marks_of_speakers_may_be_references():
    source = "00:01.000 --> 00:02.000\n&gt;&gt; a?\n&gt;&gt;&gt; b.\n"
    draft = subtitles.read(VTT_HEAD + source, has_references=True)

    assert [unit.text for unit in draft.units] == ["a?", "b."]
    assert echoed(draft).content == VTT_HEAD + source


def test_text_without_an_end_of_sentence_is_translated_a_few_cues_at_a_time():
    cues = [["word"]] * (2 * subtitles.MAX_CUES + 1)

    assert len(subtitles.read(file_of(cues), has_references=False).units) == 3


@pytest.mark.parametrize(
    ("cues", "translation", "written"),
    [
        ([["aaaa bbbb,"], ["dddd eeee."]], "aaaa bbb, c dddd eeee.", ["aaaa bbb,", "c dddd eeee."]),  # by length
        ([["aaaa", "bbbbbbbbb."]], "eins zwei drei vier.", ["eins\nzwei drei vier."]),  # each line its share
    ],
)
def test_a_translation_is_cut_into_the_cues_and_lines_of_its_source(cues, translation, written):
    draft = subtitles.read(file_of(cues), has_references=False)

    assert [one.content for one in srt.parse(answered(draft, translation))] == written


@pytest.mark.parametrize(
    ("lines", "translation", "lengths"),
    [
        (["aa", "bbbbbbbbbbbbbbbb."], "eins zwei drei " * 4 + "vier.", [34, 30]),
        (["aaaa."], "lange Wörter " * 4 + "Ende.", [31, 25]),  # one line becomes two
    ],
)
def test_lines_that_would_be_too_long_are_even(lines, translation, lengths):
    draft = subtitles.read(file_of([lines]), has_references=False)

    (one,) = srt.parse(answered(draft, translation))
    assert [len(line) for line in one.content.splitlines()] == lengths


def test_too_few_words_are_shown_in_each_cue():
    draft = subtitles.read(file_of([["a"], ["b c."]]), has_references=False)

    assert [one.content for one in srt.parse(answered(draft, "A."))][-1] != ""


def test_no_cut_goes_through_a_pair_of_tags():
    draft = subtitles.read(file_of([["a <i>b</i>"], ["c d."]]), has_references=False)

    text = answered(draft, 'a <g id="1">b c</g> d.')
    assert [one.content for one in srt.parse(text)] in (["a <i>b c</i>", "d."], ["a", "<i>b c</i> d."])


def test_cues_whose_tags_are_lost_stay_as_they_were_with_a_notice():
    source = file_of([["a <i>b</i>"], ["c."]])
    written = subtitles.read(source, has_references=False).write([translation_of("A B C.")])

    assert written.content == source
    assert [notice.line for notice in written.notices] == [3]


def test_a_file_without_cues_is_refused():
    with pytest.raises(ValueError, match="no cue"):
        subtitles.read("some text\n", has_references=False)


_LINES = st.sampled_from(
    [
        "",
        " ",
        "a cat",
        "ran.",
        "- b?",
        "<i>",
        "</i>",
        "<i>c</i>",
        "{\\an8}",
        "1",
        "2",
        "NOTE d",
        "♪ e ♪",
        "&amp;",
        "x < y",
        "-->",
        # Timings, and what looks like them.
        "00:00:01,000 --> 00:00:02,000",
        "00:01.000 --> 00:02.000 line:0",
        "9:9:9 --> 9:9:9",
        "<v A>f",
        "\u2028g",
        "WEBVTT",
    ]
)


@given(st.lists(_LINES, max_size=14), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_file_comes_back_as_it_was(lines, line_end, has_references):
    source = line_end.join([*lines, "00:01.000 --> 00:02.000", "a", ""])
    draft = subtitles.read(source, has_references=has_references)

    assert echoed(draft).content == source
    assert draft.write([Translation(error=InternalError("broken"))] * len(draft.units)).content == source
    timing = re.compile(r"\d --> \d")
    assert len(timing.findall(shouted(draft).content)) == len(timing.findall(source))


@pytest.mark.parametrize("source", ["", "\n", "WEBVTT\n", "WEBVTT\n\n"])
@pytest.mark.parametrize("has_references", [False, True])
def test_a_file_without_a_cue_and_without_language_comes_back_as_it_is(source, has_references):
    draft = subtitles.read(source, has_references=has_references)

    assert draft.units == ()
    assert draft.write([]).content == source
