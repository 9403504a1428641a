"""Where the tags of a segment stand in its translation."""

import pytest

from service.records import Link, TextFormat
from service.text.alignment import words_of
from service.text.markup import parse
from service.text.segments import Part, Segment, split
from service.text.tag_placement import is_well_formed, place_tags


def first_segment(parts: list[Part]) -> Segment:
    return next(part for part in parts if isinstance(part, Segment))


def placed(html: str, target: str, links: str = "") -> str:
    """The translation with tags; links are given as "0-1 1-0": numbers of words, marks included."""
    segment = first_segment(parse(html, TextFormat.HTML))
    source_words, target_words = words_of(segment.text), words_of(target)
    pairs = (tuple(map(int, link.split("-"))) for link in links.split())
    result = place_tags(segment, target, [Link(source_words[one], target_words[other]) for one, other in pairs])
    assert is_well_formed(segment.tags, result)
    return result


def straight(num_words: int) -> str:
    return " ".join(f"{number}-{number}" for number in range(num_words))


@pytest.mark.parametrize(
    ("html", "target", "links", "result"),
    [
        ("A <b>red</b> car.", "Ein rotes Auto.", straight(4), "Ein <b>rotes</b> Auto."),
        ("The <b>car</b> red", "Rotes Auto", "0-1 1-1 2-0", "Rotes <b>Auto</b>"),
        ("Click <a>here</a>.", "Hier klicken.", "0-1 1-0 2-2", "<a>Hier</a> klicken."),
        ("He <b>has eaten</b> it up.", "Er hat es gegessen.", "0-0 1-1 2-3 3-2 5-4", "Er <b>hat es gegessen</b>."),
        ("He (<i>not she</i>) came", "Er (nicht sie) kam", straight(6), "Er (<i>nicht sie</i>) kam"),
        ("A <b>very <i>old</i></b> car", "Ein sehr altes Auto", straight(4), "Ein <b>sehr <i>altes</i></b> Auto"),
        ("<b>a</b> <i>b</i> c", "B A C", "0-1 1-0 2-2", "<i>B</i> <b>A</b> C"),
        ("<b>New</b> <i>house</i> today", "Neubau heute", "0-0 1-0 2-1", "<b><i>Neubau</i></b> heute"),
        ("<b>Stop!</b> Go on.", "Halt! Weiter.", "0-0 1-1 2-2 3-2 4-3", "<b>Halt!</b> Weiter."),
        ("R&amp;D is <b>&lt; 5</b>", "F&E ist < 5", straight(4), "F&amp;E ist <b>&lt; 5</b>"),
    ],
)
def test_pairs_stand_around_the_words_that_are_linked_to_theirs(html, target, links, result):
    assert placed(html, target, links) == result


@pytest.mark.parametrize(
    ("html", "target", "links", "result"),
    [
        ("a b <i>c</i><br>d e f", "A B C D E F", straight(6), "A B <i>C</i><br>D E F"),
        ("a b c<br><i>d</i> e f", "A B C D E F", straight(6), "A B C<br><i>D</i> E F"),
        ("a b <i>c<br>d</i> e f", "A B C D E F", straight(6), "A B <i>C<br>D</i> E F"),
        ("a <br>\n b <b>c</b>", "A B C", straight(3), "A <br>\n B <b>C</b>"),
        ("a b c<br>d <i>e</i> f", "E & F", "4-0 5-2", "<i>E</i> &amp;<br>F"),
        ("<i>a</i><br>b<br>c", "A", "0-0", "<i>A</i><br><br>"),
    ],
)
def test_a_line_break_among_tags_takes_the_place_of_a_space_at_its_share(html, target, links, result):
    assert placed(html, target, links) == result


@pytest.mark.parametrize(
    ("html", "target", "links", "result"),
    [
        ("Press <img> now.", "Jetzt dr\u00fccken.", "0-1 1-0 2-2", "<img> Jetzt dr\u00fccken."),
        ("Press <img>, then go", "Dr\u00fccken, dann gehen", straight(4), "Dr\u00fccken <img>, dann gehen"),
        ("Press<img> now", "Jetzt dr\u00fccken", "0-1 1-0", "Jetzt dr\u00fccken<img>"),
        ("one<br>two", "eins zwei", straight(2), "eins<br>zwei"),
        ("a <a><img></a> b", "A B", straight(2), "A <a><img></a> B"),
        ("a <img> <img> b", "A B", straight(2), "A <img> <img> B"),
        ("x <a><img> b</a> c", "X C B", "0-0 1-2 2-1", "X C <a><img> B</a>"),
        ("x <b></b>y z", "X Z Y", "0-0 1-2 2-1", "X Z <b></b>Y"),
        ("sun<wbr>flower is", "Die Sonnenblume ist", "0-1 1-2", "Die Sonnenblume<wbr> ist"),
    ],
)
def test_what_stands_alone_stands_beside_the_word_that_is_linked_to_its_neighbour(html, target, links, result):
    assert placed(html, target, links) == result


@pytest.mark.parametrize(
    ("html", "target", "links", "result"),
    [
        ("The <code>git push</code> command", "Der Befehl git push", "", "Der Befehl <code>git push</code>"),
        ("<b>Use <code>x</code></b> now", "Jetzt x nutzen", "0-2 1-1 2-0", "Jetzt <b><code>x</code> nutzen</b>"),
        ("a <kbd>ls</kbd> <kbd>ls -l</kbd> b", "A ls -l ls B", "", "A <kbd>ls -l</kbd> <kbd>ls</kbd> B"),
        ("Set <var>a</var> to a", "Setze a auf a", "0-0 1-3 2-2 3-1", "Setze a auf <var>a</var>"),
        ("The <code>cat</code> is", "Die Katze ist", straight(3), "Die <code>cat</code> Katze ist"),
        ("un<code>x</code>ed", "Unxed", "", "Un<code>x</code>ed"),
        ("a <i translate=no>&lt;</i> b", "A B", straight(2), "A <i translate=no>&lt;</i> B"),
    ],
)
def test_what_a_tag_shows_is_the_tag_again(html, target, links, result):
    assert placed(html, target, links) == result


@pytest.mark.parametrize(
    ("html", "target", "result"),
    [
        ("A <b>red</b> car.", "Ein rotes Auto.", "Ein <b>rotes</b> Auto."),
        ("A <b>car</b>", "Auto", "<b>Auto</b>"),
        ("a <b>b</b>", "a b c d", "a b <b>c d</b>"),
        ("a <b>b</b> c", "", "<b></b>"),
        ("a <br>b", "A B", "A <br>B"),
    ],
)
def test_without_links_tags_stand_at_the_same_share_of_the_way(html, target, result):
    assert placed(html, target) == result


@pytest.mark.parametrize(
    ("html", "target", "links", "result"),
    [
        ("a b</i> c", "C A B", "0-1 1-2 2-0", "C A B</i>"),
        ("a <i>b c", "A B C", straight(3), "A <i>B C"),
        ("a</b> b <i>c", "A B C", straight(3), "A</b> B <i>C"),
        ("a</b> <i>b", "B A", "0-1 1-0", "B A</b><i>"),
        ("a <b>b <i>c", "C B A", "0-2 1-1 2-0", "<b><i>C B A"),
    ],
)
def test_tag_whose_partner_is_elsewhere_reaches_to_the_end_or_from_the_beginning(html, target, links, result):
    assert placed(html, target, links) == result


def test_ranges_that_cross_are_cut_so_that_tags_nest():
    result = placed("<a>x y</a> <b>z w</b> v", "Z X W Y V", "0-1 1-3 2-0 3-2 4-4")

    assert result == "<b>Z</b> <a>X W Y</a> V"


@pytest.mark.parametrize(
    ("html", "positions", "parts"),
    [
        ("One. Two.", [5], ["One.", "Two."]),
        ("One. Two.", [4], ["One.", "Two."]),
        ("One. Two.", [0, 9], ["One. Two."]),
        ("One. Two.", [4, 5], ["One.", "Two."]),
        ("Say <b>one. Two</b> x.", [9], ["Say |<b>|one.", "Two|</b>| x."]),
        ("A <b>one.</b> <i>Two</i> x.", [7], ["A |<b>|one.|</b>|", "|<i>|Two|</i>| x."]),
        ("<b>One. Two.</b>", [5], ["One.", "Two."]),
        ("A.<br>B <br>c.", [3], ["A.", "B | <br>|c."]),
        ("A <b>one. </b>Two.", [7], ["A |<b>|one.|</b>|", "Two."]),
        ("A.<b> Two</b> x.", [3], ["A.", "|<b>|Two|</b>| x."]),
        ("A.<i></i> <img> B.", [3], ["A.", "B."]),
        ("Run <code>a. b</code> now.", [7], ["Run |<code>a. b</code>|a. b now."]),
        ("<kbd>A</kbd> one. <kbd>B</kbd> two", [7], ["|<kbd>A</kbd>|A one.", "|<kbd>B</kbd>|B two"]),
    ],
)
def test_segment_is_cut_between_sentences_and_tags_go_with_the_text_they_touch(html, positions, parts):
    pieces = split(first_segment(parse(html, TextFormat.HTML)), positions)

    assert [with_tags(piece) for piece in pieces if isinstance(piece, Segment)] == parts
    assert "".join(piece if isinstance(piece, str) else piece.source for piece in pieces) in html


def with_tags(segment: Segment) -> str:
    text = segment.text
    for tag in reversed(segment.tags):
        text = f"{text[: tag.position]}|{tag.source}|{text[tag.position :]}"
    return text


@pytest.mark.parametrize(
    ("result", "is_good"),
    [
        ("x <b>y</b><br>", True),
        ("<br><b></b>", True),
        ("x <b>y<br>", False),
        ("x <b>y</b></b><br>", False),
        ("x </b>y<b><br>", False),
        ("x <b>y</b>", False),
    ],
)
def test_result_has_the_same_tags_as_often_and_nested(result, is_good):
    segment = first_segment(parse("a <b>c</b><br>d", TextFormat.HTML))

    assert is_well_formed(segment.tags, result) is is_good


@pytest.mark.parametrize(
    ("html", "result", "is_good"),
    [
        ("a <b>b <i>c</i></b> d", "<b><i></b></i>", False),
        ("a <b>b</b> <i>c</i> d", "<b><i></i></b>", True),
        ("a <b>b <i>c</b></i> d", "</i><i><b></b>", True),
        ("a</b> b <i>c", "<i></b>", False),
    ],
)
def test_tags_must_nest_where_those_of_the_source_do(html, result, is_good):
    assert is_well_formed(first_segment(parse(html, TextFormat.HTML)).tags, result) is is_good


def test_a_tag_with_a_translated_value_takes_the_place_of_the_one_that_was_there():
    segment = first_segment(parse('<b title="old">One</b> <i>two</i>', TextFormat.HTML))
    first, *others = segment.tags
    translated = segment._replace(tags=(first._replace(source='<b title="very very old">'), *others))

    assert place_tags(translated, "Eins zwei", ()) == '<b title="very very old">Eins</b> <i>zwei</i>'


@pytest.mark.parametrize(
    ("html", "target", "links", "result"),
    [
        (
            "<b>C<sub>6</sub>H<sub>12</sub></b> melts",
            "C6H schmilzt",
            straight(2),
            "<b>C<sub>6</sub>H<sub>12</sub></b> schmilzt",
        ),
        ("Now a<sup>2</sup>=b<sup>2</sup>+1.", "Jetzt a=b+1.", "0-0", "Jetzt a<sup>2</sup>=b<sup>2</sup>+1."),
        (
            "See <a><i>https://</i><b>exa.org</b></a>",
            "https://exa.org sehen",
            "0-7 1-0",
            "<a><i>https://</i><b>exa.org</b></a> sehen",
        ),
        ("Key <i>XY</i><b>12</b> is", "Der Code XY12 ist", "0-1 1-2 2-3", "Der Code <i>XY</i><b>12</b> ist"),
        ("B<b>und</b> is", "Der Bund ist", "0-1 1-2", "Der B<b>und</b> ist"),
        ("The <b>c</b>at is", "Die Katze ist", straight(3), "Die <b>Katze</b> ist"),
        ("A<b>1 B</b>2 is", "A1 B2 ist", straight(3), "<b>A1 B2</b> ist"),
        ("H<sub>2</sub>O in H2O", "H2O in H2O", straight(3), "H<sub>2</sub>O in H2O"),
    ],
)
def test_tags_inside_what_comes_back_letter_by_letter_stand_at_their_letters(html, target, links, result):
    assert placed(html, target, links) == result
