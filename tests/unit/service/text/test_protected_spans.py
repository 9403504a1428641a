import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.records import Span
from service.text.protected_spans import Alphabet, find_spans, spans_of
from service.text.segments import Segment, Tag, TagKind

CASES = [
    line.replace("\\n", "\n")
    for line in Path(__file__).with_name("span_cases.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("# ")
]
MARKS = re.compile("⟦(.*?)⟧", re.DOTALL)
KNOWN = frozenset(map(chr, range(32, 127))) - set("#$&=@[\\]^_`{|}~") | set("ÄÖÜäöüß–—‘’‚“”„")


def as_small_tokenizer(character: str) -> str | None:
    return character if character in KNOWN else {"™": "TM", "…": "..."}.get(character)


@pytest.fixture
def alphabet():
    return Alphabet(as_small_tokenizer)


def marked(text: str, spans: tuple[Span, ...]) -> str:
    for span in reversed(spans):
        text = f"{text[: span.begin]}⟦{text[span.begin : span.end]}⟧{text[span.end :]}"
    return text


def test_spans_of_a_segment_are_those_found_and_those_that_its_tags_show(alphabet):
    text = "Ask Acme Ltd about {name} and {x} y."
    tags = [
        Tag(position, f"<i>{text[position:end]}</i>", TagKind.POINT, width=end - position)
        for position, end in ((4, 12), (30, 35))
    ]

    spans = spans_of(Segment(text, 0, text, tuple(tags)), alphabet)

    assert marked(text, spans) == "Ask ⟦Acme Ltd⟧ about ⟦{name}⟧ and ⟦{x} y⟧."


def test_finds_what_comes_back_as_it_is(alphabet):
    texts = [MARKS.sub(r"\1", case) for case in CASES]

    assert [marked(text, find_spans(text, alphabet)) for text in texts] == CASES


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (r"It was not found.\nPlease wait.", [r"\n"]),
        (r"Sure?\n\nYour changes", [r"\n\n"]),
        (r"\u00a9 2026 by us\t", [r"\u00a9", r"\t"]),
        (r"Open C:\new\temp now", [r"C:\new\temp"]),
        (r"The boat is here.\nplease come\tnow\r\nor never.", [r"\n", r"\t", r"\r\n"]),
        (r"Die Tür ist zu\n\nbitte warten.", [r"\n\n"]),
        (r"\nplease wait for 30\% of it", [r"\n", r"\%"]),
        (r"Das Boot\u00a0wartet hier\tund dort", [r"\u00a0", r"\t"]),
        (r"One line\\nand another", [r"\\n"]),
        (r"The sea:\NBoats\N{\c&H46&}Birds", [r"\N", r"\N{\c&H46&}"]),
        (r"The folder src\lib\new and D:\temp\neu stay.", [r"src\lib\new", r"D:\temp\neu"]),
        (r"\newline and \times and \reference", [r"\newline", r"\times", r"\r"]),
    ],
)
def test_escapes_of_strings_come_back_and_folders_stay_whole(text, spans, alphabet):
    assert [text[slice(*span)] for span in find_spans(text, alphabet)] == spans


@pytest.mark.parametrize(
    ("character", "is_lost"),
    [
        ("a", False),
        ("™", True),
        ("…", False),
        ("\u00a0", False),
        ("\u200b", False),
        ("é", True),
        ("%", False),
        ("\u20c1", True),
    ],
)
def test_a_character_that_the_tokenizer_changes_is_lost_unless_it_means_the_same(character, is_lost, alphabet):
    assert bool(alphabet.lacks(character)) == is_lost


# Beginnings of each kind, and what could make a regular expression try again and again.
ALPHABET = Alphabet(as_small_tokenizer)
SIGNS = st.sampled_from(
    [*"abcXYZ019 .,:;/\\-_@#%{}$<>()[]`'\"&=~+*|!?\n", "é", "😀", "\u200d", "\ufe0f", "你", "http://", "™"]
)
TEXTS = st.one_of(st.text(), st.lists(SIGNS, max_size=40).map("".join))


@given(TEXTS)
@settings(max_examples=60)
def test_spans_are_in_order_apart_and_hold_every_character_that_is_lost(text):
    spans = find_spans(text, ALPHABET)

    assert all(span.begin < span.end <= len(text) for span in spans)
    assert all(one.end < other.begin for one, other in pairwise(spans))
    between = MARKS.sub("", marked(text, spans)) if "⟦" not in text and "⟧" not in text else ""
    composed = not any(0x300 <= ord(character) < 0x370 for character in between)
    assert not (composed and ALPHABET.lacks(between))
