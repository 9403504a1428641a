"""Java's .properties: values, with their escapes; those of a MessageFormat double their apostrophes."""

import json
import re
from functools import partial

from service.documents.draft import Draft
from service.documents.messages import Message, draft_of_messages

_LINE = re.compile(
    r"[ \t\f]*+(?P<comment>[#!][^\r\n]*+)?(?P<content>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*+)(?:\r\n|\r|\n|\Z)"
)
_KEY = re.compile(r"(?:[^\\\s=:]|\\.)++[ \t\f]*+(?:[=:][ \t\f]*+)?", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<line>\r?\n[ \t\f]*+|\r[ \t\f]*+)|(?P<one>.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ARGUMENT = re.compile(r"\{\d")


def read(text: str) -> Draft:
    """Return the draft of a file of properties."""
    messages: list[Message] = []
    at = 0
    is_ascii = text.isascii()
    while at < len(text):
        line = _LINE.match(text, at)
        assert line is not None
        at = max(line.end(), at + 1)
        if line["comment"] is None and (key := _KEY.match(text, line.start("content"), line.end("content"))):
            said = _said(text[key.end() : line.end("content")])
            write = partial(_written, is_ascii=is_ascii, has_arguments=bool(_ARGUMENT.search(said)))
            messages.append(Message(key.end(), line.end("content"), said, write))
    return draft_of_messages(text, messages)


def _said(value: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match["code"]:
            return chr(int(match["code"], 16))
        return "" if match["line"] is not None else _ESCAPES.get(match["one"], match["one"])

    return _ESCAPE.sub(character, value)


def _written(text: str, *, is_ascii: bool, has_arguments: bool) -> str:
    if has_arguments:
        text = re.sub(r"(?<!')'(?!')", "''", text)
    text = text.replace("\\", "\\\\")
    for letter, character in _ESCAPES.items():
        text = text.replace(character, f"\\{letter}")
    if text.startswith(" "):
        text = "\\" + text
    if is_ascii:  # an escape has one of UTF-16's units, as in JSON
        return "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in text)
    return text
