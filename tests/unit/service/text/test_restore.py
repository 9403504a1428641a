import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.records import Link, Span
from service.text.document import Segment, Tag, TagKind
from service.text.protect import Alphabet, find_spans
from service.text.restore import (
    STAND_INS,
    StandIn,
    cut_at,
    find_copies,
    insert_by_links,
    is_intact,
    put_back,
    strip_outer,
    take_out,
    with_stand_ins,
)

ALPHABET = Alphabet(lambda character: character if character.isalnum() or character in " .,:;!?-'()" else None)
WORDS = st.sampled_from(["the", "cat", "Haus", "你好", ".", ",", "(", ")", "-", "5", " ", "  ", "\n", "'s", "X", "XA"])
KEPT = st.sampled_from(
    ["{name}", "%s", "https://example.com/x", "😀", "$5", "café", "a_b", "1.2.3", "{}", "<b>", "@x", "&"]
)
TEXTS = st.lists(st.one_of(WORDS, KEPT), max_size=15).map("".join) | st.text(max_size=30)


def texts_of(text: str) -> list[str]:
    return [text[span.begin : span.end] for span in find_spans(text, ALPHABET)]


def replace_spans(text: str, alphabet: Alphabet = ALPHABET) -> tuple[str, tuple[StandIn, ...]]:
    found = with_stand_ins(text, find_spans(text, alphabet), alphabet)
    assert found is not None
    return found


def word_spans(text: str) -> list[Span]:
    words, begin = text.split(" "), 0
    spans = []
    for word in words:
        bare = word.strip(".,!?()")
        if bare:
            at = begin + word.index(bare)
            spans.append(Span(at, at + len(bare)))
        begin += len(word) + 1
    return spans


def links(source: str, target: str, pairs: str) -> list[Link]:
    """Links of words by number: "0-0 1-2"."""
    sources, targets = word_spans(source), word_spans(target)
    numbers = [pair.split("-") for pair in pairs.split()]
    return [Link(sources[int(one)], targets[int(other)]) for one, other in numbers]


@pytest.mark.parametrize(
    ("texts", "target", "expected"),
    [
        ([], "Hallo", True),
        (["{name}"], "Hallo {name}!", True),
        (["{name}"], "Hallo!", False),
        (["{name}"], "{name} {name}", False),
        (["%s", "%s"], "%s und %s", True),
        (["%s", "%s"], "nur %s", False),
        (["a.txt"], "data.txt", False),
        (["a.txt"], "die a.txt-Datei", True),
        (["&", "AT&T"], "AT&T & Co", True),
        (["&"], "AT&T & Co", False),
        (["1.2.3"], "11.2.3", False),
        (["日本"], "我爱日本人", True),
    ],
)
def test_intact_is_what_has_each_text_as_often_as_asked(texts, target, expected):
    assert is_intact(texts, target) == expected


def test_copies_are_found_in_the_order_of_the_translation():
    assert find_copies(["%d", "{x}"], "{x} hat %d") == (Span(0, 3), Span(8, 10))


def test_stand_ins_are_words_that_the_text_does_not_have():
    text = "XA sends {a} to {b}"

    replaced, stand_ins = replace_spans(text)

    assert replaced == "XA sends XB to XP"
    assert [(one.word, one.text) for one in stand_ins] == [("XB", "{a}"), ("XP", "{b}")]


def test_each_attempt_has_other_stand_ins_until_none_is_left():
    text = "Hello {name}"
    found = [with_stand_ins(text, find_spans(text, ALPHABET), ALPHABET, attempt=number) for number in range(4)]

    assert [one and one[0] for one in found] == ["Hello XA", "Hello 5284", "Hello X1", None]


def test_stand_ins_that_the_tokenizer_does_not_have_are_not_used():
    alphabet = Alphabet(lambda character: None if character == "B" else character)

    replaced, _ = replace_spans("Hello {name}", alphabet)

    assert replaced == f"Hello {STAND_INS[1][0]}"


def test_more_spans_than_stand_ins_have_none():
    text = "{x} " * 30

    assert with_stand_ins(text, find_spans(text, ALPHABET), ALPHABET) is None


@pytest.mark.parametrize(
    ("span", "target"), [(r"\n", r"gefunden.\nBitte"), ("%d", "dauert %dmin."), ("%s", "vor%sung")]
)
def test_a_word_may_begin_right_behind_an_escape_or_a_placeholder(span, target):
    assert find_copies([span], target) == (Span(target.index(span), target.index(span) + 2),)


def test_a_variable_is_not_found_in_a_longer_one():
    assert find_copies(["$name"], "$names") is None


def test_a_stand_in_inside_a_word_is_set_apart_and_joined_again():
    text = "vor%sung"
    replaced, stand_ins = replace_spans(text)

    assert replaced == "vor XA ung"
    assert put_back("pre XA tion", stand_ins) == "pre%stion"
    assert put_back("XA", stand_ins) == "%s"


def test_a_formula_is_no_part_of_a_compound():
    _, stand_ins = replace_spans("Total = 5 and {x}.")

    assert [one.text for one in stand_ins] == ["= 5", "{x}"]
    assert put_back("Gesamt-XA und XB.", stand_ins) == "Gesamt = 5 und {x}."


@pytest.mark.parametrize("target", ["Hallo", "XA XA", "XAs", "xa", "X A", "XA und XAs"])
def test_a_stand_in_that_is_missing_doubled_or_changed_puts_nothing_back(target):
    _, stand_ins = replace_spans("Hello {name}")

    assert put_back(target, stand_ins) is None


@given(TEXTS)
def test_what_is_copied_as_it_is_comes_back_as_the_text(text):
    spans = find_spans(text, ALPHABET)
    found = with_stand_ins(text, spans, ALPHABET)
    assume(found)

    assert found is not None
    assert put_back(*found) == text


@given(TEXTS, st.randoms(use_true_random=False))
def test_stand_ins_in_another_order_still_put_every_span_back_once(text, random):
    spans = find_spans(text, ALPHABET)
    found = with_stand_ins(text, spans, ALPHABET)
    assume(found)
    assert found is not None
    stand_ins = found[1]
    words = random.sample([one.word for one in stand_ins], len(stand_ins))
    restored = put_back(" ".join(words), stand_ins)

    assert restored is not None
    assert sorted(restored.replace(" ", "")) == sorted("".join(one.text for one in stand_ins).replace(" ", ""))


@pytest.mark.parametrize(
    ("text", "without", "positions"),
    [
        ("Hello {name}!", "Hello!", [5]),
        ("{a} likes {b}.", "likes.", [0, 5]),
        ("See {a} now", "See now", [4]),
        ("({a} files)", "(files)", [1]),
        ("pre{x}post", "prepost", [3]),
        ("{a} {b}", "", [0, 0]),
        ("no spans", "no spans", []),
        ("Wait, {name}, come", "Wait,, come", [5]),
    ],
)
def test_a_text_without_its_spans_has_no_doubled_spaces(text, without, positions):
    found, gaps = take_out(text, find_spans(text, ALPHABET))

    assert (found, [gap.position for gap in gaps]) == (without, positions)


@pytest.mark.parametrize(
    ("text", "target", "pairs", "expected"),
    [
        ("Please open {x} first", "Bitte öffnen Sie zuerst", "0-0 1-1 2-3", "Bitte öffnen Sie {x} zuerst"),
        ("The file is called {x}.", "Die Datei heißt.", "0-0 1-1 2-2 3-2", "Die Datei heißt {x}."),
        ("{x} was not found", "wurde nicht gefunden", "0-0 1-1 2-2", "{x} wurde nicht gefunden"),
        ("Hello {x}!", "Hallo!", "0-0", "Hallo {x}!"),
        ("({x} files)", "(Dateien)", "0-0", "({x} Dateien)"),
        ("pre{x} post", "vor nach", "0-0 1-1", "vor{x} nach"),
        ("{x} (old) works", "(alt) läuft", "0-0 1-1", "{x} (alt) läuft"),
        ("{x} and {y} meet", "und treffen sich", "0-0 1-1", "{x} und {y} treffen sich"),
        ("{x} {y} meet", "treffen sich", "0-0", "{x} {y} treffen sich"),
        ("I saw {x} yesterday", "Gestern sah ich", "0-2 1-1 2-0", "{x} Gestern sah ich"),
        ("open {x} 好", "打开好", "", None),
    ],
)
def test_a_span_goes_beside_the_word_that_belongs_to_its_neighbour(text, target, pairs, expected):
    without, gaps = take_out(text, find_spans(text, ALPHABET))

    assert insert_by_links(without, gaps, target, links(without, target, pairs)) == expected


def test_no_space_comes_between_a_span_and_a_script_without_spaces():
    source, target = "open now", "现在打开"
    gap = take_out("open {x} now", (Span(5, 8),))[1]

    result = insert_by_links(source, gap, target, [Link(Span(0, 4), Span(2, 4)), Link(Span(5, 8), Span(0, 2))])

    assert result == "{x}现在打开"


@given(TEXTS, st.text(alphabet="ab (.)好", min_size=1, max_size=20), st.data())
def test_spans_put_in_by_any_links_stand_there_once_and_the_rest_stays(text, target, data):
    without, gaps = take_out(text, find_spans(text, ALPHABET))
    gaps = tuple(gap._replace(text=chr(0xE000 + number)) for number, gap in enumerate(gaps))
    assume(without)

    def span_in(size: int) -> Span:
        begin = data.draw(st.integers(0, size - 1))
        return Span(begin, data.draw(st.integers(begin + 1, size)))

    some = [Link(span_in(len(without)), span_in(len(target))) for _ in range(data.draw(st.integers(0, 4)))]
    result = insert_by_links(without, gaps, target, some)

    if result is not None:
        assert all(result.count(gap.text) == 1 for gap in gaps)
        assert re.sub("[\ue000-\ue0ff ]", "", result) == target.replace(" ", "")


@given(TEXTS)
def test_pieces_around_spans_are_the_text(text):
    spans = find_spans(text, ALPHABET)
    pieces = cut_at(text, spans)

    assert "".join(one if isinstance(one, str) else text[one.begin : one.end] for one in pieces) == text
    assert tuple(one for one in pieces if not isinstance(one, str)) == spans
    assert "" not in pieces


def segment_of(text: str) -> Segment:
    return Segment(source=text, begin=7, text=text, spans=find_spans(text, ALPHABET))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I love you 😀", ("", "I love you", " 😀")),
        ("😀 I love 😀 you 😀 ❤️", ("😀 ", "I love 😀 you", " 😀 ❤️")),
        ("[see the notes]", ("[", "see the notes", "]")),
        ("{name} has left.", ("", "{name} has left.", "")),
        ("Please open https://example.com", ("", "Please open https://example.com", "")),
        ("Read this. https://example.com", ("", "Read this.", " https://example.com")),
        ("You owe {}", ("", "You owe {}", "")),
        ("😀", ("😀", None, "")),
        ("plain", ("", "plain", "")),
    ],
)
def test_what_says_nothing_in_a_sentence_is_left_outside(text, expected):
    before, inner, after = strip_outer(segment_of(text))

    assert (before, inner and inner.text, after) == expected


@given(TEXTS.map(str.strip).filter(bool))
def test_what_is_outside_and_the_segment_are_the_text_and_the_spans_are_the_same(text):
    segment = segment_of(text)
    before, inner, after = strip_outer(segment)

    assert before + (inner.source if inner else "") + after == text
    if inner:
        assert inner.source == inner.text == inner.text.strip()
        assert inner.begin == segment.begin + len(before)
        kept = [inner.text[span.begin : span.end] for span in inner.spans]
        assert kept == texts_of(text)[len(find_spans(before, ALPHABET)) :][: len(kept)]


def test_tags_stay_around_their_words_when_the_ends_are_left_outside():
    # "😀 <b>Hi</b> 😀" with the tags taken out.
    source = "😀 <b>Hi</b> 😀"
    tags = (Tag(2, "<b>", TagKind.OPEN, 1, 5), Tag(4, "</b>", TagKind.CLOSE, 0, 10))
    segment = Segment(source, 3, "😀 Hi 😀", tags, (Span(0, 1), Span(5, 6)), (3, 4, 8, 9, 14, 15))

    before, inner, after = strip_outer(segment)

    assert inner is not None
    assert (before, inner.source, after) == ("😀 ", "<b>Hi</b>", " 😀")
    assert (inner.text, inner.begin, inner.spans, inner.offsets) == ("Hi", 5, (), (8, 9))
    assert [tag.position for tag in inner.tags] == [0, 2]


def test_an_end_inside_a_tag_stays():
    source = "<b>😀 Hi</b>"
    tags = (Tag(0, "<b>", TagKind.OPEN, 1), Tag(4, "</b>", TagKind.CLOSE, 0))
    segment = Segment(source, 0, "😀 Hi", tags, (Span(0, 1),), (3, 4, 5, 6))

    assert strip_outer(segment) == ("", segment, "")
