"""The texts that a new user found damaged, each with its translation word by word and a fact about every right one."""

import re
from collections.abc import Callable
from typing import NamedTuple

from service.records import TextFormat
from tests.text.corpus import Case


class Row(NamedTuple):
    """A text that was damaged."""

    case: Case
    word_by_word: str  # what it is if the model translates each word of `DICTIONARY`
    is_right: Callable[[str], bool]  # of any good translation


DICTIONARY = {
    "arrived": "kam",
    "on": "am",
    "at": "um",
    "he": "er",
    "paid": "bezahlte",
    "for": "für",
    "the": "die",
    "ticket": "Karte",
    "was": "war",
    "late": "spät",
    "train": "Bahn",
    "we": "wir",
    "need": "brauchen",
    "bread": "Brot",
    "milk": "Milch",
    "this": "das",
    "is": "ist",
    "bold": "fett",
    "and": "und",
    "a": "ein",
    "link": "Verweis",
    "hello": "hallo",
    "you": "du",
    "have": "hast",
    "new": "neue",
    "messages": "Nachrichten",
    "in": "in",
    "cats": "Katzen",
    "are": "sind",
    "sleeping": "müde",
    "i": "ich",
    "love": "liebe",
    "sun": "Sonne",
    "shines": "scheint",
    "door": "Tür",
    "open": "offen",
    "boat": "Fähre",
    "here": "hier",
}


def word_by_word(text: str) -> str:
    """Translate each word of the dictionary, lower case or capitalised, and leave all else; capitals are not known."""

    def translation(found: re.Match[str]) -> str:
        word = found.group()
        known = DICTIONARY.get(word.lower()) if word == word.lower() or word == word.capitalize() else None
        if known is None:
            return word
        return known[0].upper() + known[1:] if word[0].isupper() else known

    return re.sub(r"[^\W\d_]+", translation, text)


_PARAGRAPHS = "The train was late. We need bread.\n\nThe door is open.\n\n- bread\n- milk\n"
_TWELVE = "The door is open. The sun shines. The boat is here. " * 4
_HTML = '<p>This is <b>bold</b> and <a href="https://example.com/x?y=1">a link</a>.</p>'
_HTML_RIGHT = re.compile(r'<p>\w+ ist <b>\w+</b> und <a href="https://example\.com/x\?y=1">\w+ \w+</a>\.</p>')

REPORTED = (
    Row(
        Case(
            "abbreviations and a price",
            "Dr. Smith arrived at 5 p.m. on Jan. 3rd. He paid $1,299.99 for the ticket.",
            keeps=("$",),
            sentences=2,
        ),
        "Dr. Smith kam um 5 p.m. am Jan. 3rd. Er bezahlte $1.299,99 für die Karte.",
        lambda said: "Dr. Smith" in said and bool(re.search(r"\$\s?1[.,]299[.,]99|1[.,]299[.,]99\s?\$", said)),
    ),
    Row(
        Case("two paragraphs and a list", _PARAGRAPHS, sentences=5),
        "Die Bahn war spät. Wir brauchen Brot.\n\nDie Tür ist offen.\n\n- Brot\n- Milch\n",
        lambda said: [line[:2] for line in said.split("\n")][3:] == ["", "- ", "- ", ""] and "Brot" in said,
    ),
    Row(
        Case("twelve sentences", _TWELVE.strip(), sentences=12),
        ("Die Tür ist offen. Die Sonne scheint. Die Fähre ist hier. " * 4).strip(),
        lambda said: said.count(".") == 12 and said.count("Sonne") == 4,
    ),
    Row(
        Case("bold and a link", _HTML, TextFormat.HTML, sentences=1),
        '<p>Das ist <b>fett</b> und <a href="https://example.com/x?y=1">ein Verweis</a>.</p>',
        lambda said: bool(_HTML_RIGHT.fullmatch(said)),
    ),
    Row(
        Case(
            "placeholders",
            "Hello {name}, you have %d new messages in %(folder)s.",
            keeps=("{name}", "%d", "%(folder)s"),
            sentences=1,
        ),
        "Hallo {name}, du hast %d neue Nachrichten in %(folder)s.",
        lambda said: said.startswith("Hallo {name}") and "%d neue" in said and said.endswith(" %(folder)s."),
    ),
    Row(
        Case("a URL", "https://www.example.com/path", keeps=("https://www.example.com/path",)),
        "https://www.example.com/path",
        lambda said: said == "https://www.example.com/path",
    ),
    Row(
        Case("an e-mail address", "anna.mueller@example.org", keeps=("anna.mueller@example.org",)),
        "anna.mueller@example.org",
        lambda said: said == "anna.mueller@example.org",
    ),
    Row(
        Case("capitals", "THE CATS ARE SLEEPING", sentences=1),
        "DIE KATZEN SIND MÜDE",
        lambda said: said.isupper() and said.startswith("DIE KATZEN"),
    ),
    Row(
        Case("emoji", "I love you \U0001f600\u2764\ufe0f", keeps=("\U0001f600", "\u2764\ufe0f"), sentences=1),
        "Ich liebe du \U0001f600\u2764\ufe0f",
        lambda said: said.startswith("Ich liebe dich") and said.endswith(" \U0001f600\u2764\ufe0f"),
    ),
)
