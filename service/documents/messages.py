"""Files of messages: texts at places of a file, each written there as its format wants it.

Only these places are written anew, so that keys, comments, order and layout stay.  Knows no format.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from model.language_codes import subtags_of
from service.documents.draft import Draft, Lines, Notice, Slot, Unit, Written, filled, has_language, text_of
from service.records import TextFormat, Translation, WarningKind
from service.text.lexer import HTML

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w-]*)[^<>]*?(?P<empty>/?)>")
_BARE_AMPERSAND = re.compile(r"&(?!#?\w+;)")
# Names of columns and keys that are languages: longer codes, and "id", mostly mean something else.
_LANGUAGE = re.compile(r"(?!id\Z)(?:[a-z]{2}|fil)(?:[-_][A-Za-z0-9]{2,8})*")
# ICU MessageFormat: "{n, plural, one{# cat} other{# cats}}".
_CHOICE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_BRANCH = re.compile(r"\s*(?:offset:\d+\s*)?(?:=\d+|\w+)\s*\{")
_NUMBER, _PLACEHOLDER = "#", "{number}"  # which a text keeps; "#" alone may be a sign


class Message(NamedTuple):
    """A text in a file, and how it is written."""

    begin: int
    end: int
    text: str
    write: Callable[[str], str]  # text -> what stands at the place
    format: TextFormat | None = None  # of the text; None: as it looks


def format_of_message(text: str) -> TextFormat:
    """Return HTML for a message of one line whose tags are in pairs; in others "<file>" and "&" are text."""
    if "\n" in text.strip() or _BARE_AMPERSAND.search(text):
        return TextFormat.PLAIN
    tags = list(_TAG.finditer(text))
    balance = Counter[str]()  # start tags less end tags
    for tag in tags:
        if not tag["empty"] and tag["name"].lower() not in HTML.voids:
            balance[tag["name"].lower()] += -1 if tag["end"] else 1
    return TextFormat.HTML if tags and not any(balance.values()) else TextFormat.PLAIN


def draft_of_messages(source: str, messages: Sequence[Message], fixed: Sequence[Slot] = ()) -> Draft:
    """Return the draft of a file with these messages, in order.

    Args:
        fixed: what is written whatever the translations are.
    """
    units: list[Unit] = []
    pieces: list[list[str]] = []  # of each message: every second one is translated
    lost: list[Notice] = []
    kept: list[Message] = []
    lines = Lines(source)
    for message in messages:
        found = pieces_of(message.text)
        line = lines.number(message.begin)
        if found is None:
            lost.append(Notice(WarningKind.NOT_TRANSLATED, line))
        elif any(map(has_language, found[1::2])):
            kept.append(message)
            pieces.append(found)
            units += (Unit(text, message.format or format_of_message(text), line) for text in found[1::2])

    def write(translations: Sequence[Translation]) -> Written:
        answers = iter(zip(units, translations, strict=True))
        slots = list(fixed)
        for message, found in zip(kept, pieces, strict=True):
            new = [text_of(*next(answers)) if number % 2 else piece for number, piece in enumerate(found)]
            if new != found:
                slots.append(Slot(message.begin, message.end, message.write(_joined(new, found))))
        return Written(filled(source, sorted(slots)), tuple(lost))

    return Draft(tuple(units), write)


def pieces_of(text: str) -> list[str] | None:
    """Return a message in pieces, every second of which is translated: the branches of a choice, or all of it.

    None: there is a choice within a sentence, whose words nobody can translate apart.
    """
    choice = _CHOICE.search(text)
    if choice is None:
        return ["", text, ""]
    if has_language(text[: choice.start()]):
        return None
    pieces, at = [text[: choice.end()]], choice.end()
    while branch := _BRANCH.match(text, at):
        pieces[-1] += branch[0]
        end = _closing(text, branch.end())
        inner = text[branch.end() : end]
        if end < 0 or _CHOICE.search(inner):
            return None
        pieces += inner.replace(_NUMBER, _PLACEHOLDER) if _PLACEHOLDER not in inner else inner, ""
        at = end
        pieces[-1] += "}"
        at += 1
    pieces[-1] += text[at:]
    return None if has_language(text[at:]) or len(pieces) < 3 else pieces


def _joined(new: Sequence[str], found: Sequence[str]) -> str:
    is_choice = len(found) > 3 or bool(found[0])
    return "".join(
        piece.replace(_PLACEHOLDER, _NUMBER) if number % 2 and is_choice else piece for number, piece in enumerate(new)
    )


def _closing(text: str, at: int) -> int:
    """Return where the brace is closed that was opened before; -1: nowhere."""
    depth = 1
    for match in re.compile("[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return -1


def is_language(key: str) -> bool:
    """Whether a key names the language of what is under it."""
    return bool(_LANGUAGE.fullmatch(key)) and subtags_of(key) is not None
