"""Time grows with the length of a text and not with its square, whatever stands in it."""

import time
from collections.abc import Callable

import pytest

from service.records import Term
from service.text.number_check import difference
from service.text.protected_spans import Alphabet, find_spans
from service.text.sentence_boundaries import sentence_begins
from service.translate.glossaries import Glossary

# Beginnings of what patterns of spans look for.
WORDS = (
    "a A 1 . a. 1. a1 a- a_ _ - -- / a/ /a \\ { } {} {a {{ {a,plural, % %( %1 $ $( ${ < <a <% & &a # @ a@ a@b. [ [1,"
    " [[ {# ` ``` : :: a:: a: 0: http:// http://( http://a( www. a.com/ ~/ ./ C:\\ ' é é- 1é $1, € 你 a, 0a -a a( a["
    " (a aB v1. 1.1 = =a a= f ff: 0- %*. + a+ ! a! é. *."
    " %a %a. %#@ *| \\n \\na \\a{ a\\b ](a ][ [a] [a= [/ [code] dd. MM Ctrl+ Ctrl- ⌘ ** *a -- -----BEGIN eyJ a1 ''"
    " \u200d 👩\u200d 🇩 1\ufe0f a\u0301 a.b:: a\\n .\\n"
)
ALPHABET = Alphabet(lambda character: character if character.isascii() else None)
LENGTHS = (2_500, 20_000)


def spans(text: str) -> None:
    find_spans(text + "{x", ALPHABET)  # an end that spoils what has matched so far


def begins(text: str) -> None:
    for language in ("en", "de"):
        sentence_begins(text + "x", language)


def numbers(text: str) -> None:
    for languages in (("en", "de"), ("de", "fr")):
        difference(text[: len(text) // 4], text[: len(text) // 8], *languages)


def terms(text: str) -> None:
    Glossary([Term(f"a {'b' * length}") for length in range(1, 200)] + [Term("," * 99 + "b")]).find(text)


CASES: list[tuple[Callable[[str], None], list[str]]] = [
    (begins, ["a. ", "A. B ", "z. B. ", '". A', "(a. B ", "1. ", ". ", " ", "[1] ", "“a. B", "a/", "a.B"]),
    (
        numbers,
        [
            "1",
            "1 ",
            "1.",
            "1,",
            "1:1",
            "1/",
            "1 000 ",
            "-1",
            "Mai 1",
            "1 bis 1",
            "zwei 1",
            "a 1 ",
            "zwei ",
            "two hundred ",
            "hundred ",
            "halb 1 ",
            "(a) ",
        ],
    ),
    (spans, [*WORDS.split()[::4], " -", "`` ", "1 € ", "{a, select, b {", "[^\n", "[a b=", "Ctrl + "]),
    (terms, ["a ", ","]),
]


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize(("work", "unit"), [(work, unit) for work, units in CASES for unit in units])
def test_time_grows_with_the_length_of_a_text_and_not_with_its_square(work, unit):
    def seconds(length: int) -> float:
        begin = time.process_time()
        work(unit * (length // len(unit)))
        return time.process_time() - begin

    seconds(100)
    short, long = LENGTHS

    assert seconds(long) < 24 * max(seconds(short) for _ in range(3)) + 0.5  # squared: 64 times
