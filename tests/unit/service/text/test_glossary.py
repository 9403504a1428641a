import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput
from service.records import Link, Span, Term, TermUse
from service.text.alignment import words_of
from service.translate.glossaries import Glossary, check_terms, honour


def found(text: str, *sources: str, spans: tuple[Span, ...] = ()) -> list[str]:
    glossary = Glossary(Term(source, source.upper()) for source in sources)
    return [text[use.span.begin : use.span.end] for use in glossary.find(text, spans)]


def uses_of(text: str, **terms: str) -> tuple[TermUse, ...]:
    return Glossary(Term(source, target) for source, target in terms.items()).find(text)


def links_of(source: str, target: str, pairs: str) -> list[Link]:
    """Links of words by number: "0-0 1-2"."""
    sources, targets = words_of(source), words_of(target)
    numbers = [pair.split("-") for pair in pairs.split()]
    return [Link(sources[int(one)], targets[int(other)]) for one, other in numbers]


@pytest.mark.parametrize(
    ("text", "sources", "expected"),
    [
        ("The cat sat", ["cat"], ["cat"]),
        ("The cats sat", ["cat"], []),
        ("The Cat sat", ["cat"], []),
        ("The bobcat sat", ["cat"], []),
        ("cat, cat; (cat) cat's", ["cat"], ["cat"] * 4),
        ("the fuel cell stack", ["fuel", "fuel cell", "fuel cell stacks"], ["fuel cell"]),
        ("fuel cell cell", ["fuel cell", "cell"], ["fuel cell", "cell"]),
        ("the fuel cells", ["fuel", "fuel cell"], ["fuel"]),
        ("C++ and .NET", ["C++", ".NET", "C"], ["C++", ".NET"]),
        ("Größe und Groß", ["Groß"], ["Groß"]),
        ("我爱世界和平", ["世界"], ["世界"]),
        ("", ["cat"], []),
    ],
)
def test_terms_are_whole_words_as_written_and_the_longest_counts(text, sources, expected):
    assert found(text, *sources) == expected


def test_what_is_protected_holds_no_terms():
    text = "cat cat.txt cat"

    assert Glossary([Term("cat", "Katze")]).find(text, (Span(4, 11),)) == (
        TermUse(Term("cat", "Katze"), Span(0, 3), is_honoured=False),
        TermUse(Term("cat", "Katze"), Span(12, 15), is_honoured=False),
    )
    assert found("fuel cell", "fuel cell", "fuel", spans=(Span(5, 9),)) == ["fuel"]


def test_of_two_terms_with_one_source_the_first_counts_and_those_of_another_glossary_come_last():
    named = Glossary([Term("cat", "Kater"), Term("dog", "Hund"), Term("big cat", "Großkatze")])
    glossary = Glossary([Term("cat", "Katze"), Term("cat", "Mieze")], named)

    targets = [use.term.target for use in glossary.find("cat dog big cat")]

    assert targets == ["Katze", "Hund", "Großkatze"]
    assert len(glossary) == 4


@pytest.mark.parametrize("target", ["das Kätzchen", "die Katzen", "die katze", "die Hauskatze"])
def test_another_form_of_a_term_is_not_the_term(target):
    text, _, (use,) = honour(uses_of("the cat", cat="Katze"), target)

    assert (text, use.is_honoured) == (target, False)


def test_words_that_are_linked_to_a_term_become_its_target_and_links_move_along():
    source, target = "the fuel cell is small", "die Zelle für Treibstoff ist klein"
    uses = uses_of(source, **{"fuel cell": "Brennstoffzelle"})
    links = links_of(source, target, "0-0 1-3 2-1 3-4 4-5")

    text, moved, (use,) = honour(uses, target, links)

    assert (text, use.is_honoured) == ("die Brennstoffzelle ist klein", True)
    words = [(source[a.begin : a.end], text[b.begin : b.end]) for a, b in moved]
    expected = [
        ("the", "die"),
        ("fuel", "Brennstoffzelle"),
        ("cell", "Brennstoffzelle"),
        ("is", "ist"),
        ("small", "klein"),
    ]
    assert words == expected


@given(
    st.lists(st.sampled_from(["cat", "dog", "big", "cat's", "cats", ",", "世界", " "]), max_size=12).map(" ".join),
    st.data(),
)
def test_what_is_called_honoured_stands_in_the_translation(text, data):
    glossary = Glossary([Term("cat", "Katze"), Term("big dog", "Dogge"), Term("世界", "Welt"), Term("dog")])
    uses = glossary.find(text)
    target = data.draw(st.text(alphabet="Katze Dog,", max_size=25))

    def span_in(size: int) -> Span:
        begin = data.draw(st.integers(0, max(0, size - 1)))
        return Span(begin, min(size, begin + data.draw(st.integers(1, 4))))

    num_links = data.draw(st.integers(0, 5)) if text and target else 0
    links = [Link(span_in(len(text)), span_in(len(target))) for _ in range(num_links)]
    written, moved, done = honour(uses, target, links)

    for term in {use.term for use in uses}:
        num_honoured = sum(use.is_honoured for use in done if use.term == term)
        assert written.count(term.target or term.source) >= num_honoured
    assert [use.span for use in done] == [use.span for use in uses]
    assert all(0 <= link.target.begin <= link.target.end <= len(written) for link in moved)


@pytest.mark.parametrize("source", ["", "  "])
def test_a_term_needs_a_source(source):
    with pytest.raises(
        InvalidInput, match=r"glossary.terms\[1\].source is '.*': a term is a word or a phrase"
    ) as caught:
        check_terms([Term("a", "b"), Term(source, "x")])

    assert caught.value.field == "glossary.terms[1].source"
