"""Apple's .strings and .stringsdict: values, and the forms of plurals."""

import re
from html import unescape

from service.documents.draft import Draft, Lines, has_language
from service.documents.inline_tags import escaped
from service.documents.messages import Message, draft_of_messages
from service.documents.xml import read_elements

_ENTRY = re.compile(
    r"""\s*+(?:/\*.*?\*/|//[^\n]*+|(?:"(?:[^"\\]|\\.)*+"|[\w.$-]++)\s*+=\s*+"(?P<value>(?:[^"\\]|\\.)*+)"\s*+;)|\s++\Z""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:[Uu](?P<code>[0-9A-Fa-f]{4})|(?P<one>.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_FORMS = frozenset({"zero", "one", "two", "few", "many", "other", "NSStringLocalizedFormatKey"})
_VARIABLE = re.compile(r"%#@\w+@")


def read(text: str) -> Draft:
    """Return the draft of a .strings file; raises ValueError."""
    messages: list[Message] = []
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise ValueError(f"the file is no .strings file: line {Lines(text).number(at)} is no entry")
        if entry["value"] is not None:
            messages.append(Message(*entry.span("value"), _said(entry["value"]), _written))
        at = entry.end()
    return draft_of_messages(text, messages)


def read_plurals(text: str) -> Draft:
    """Return the draft of a .stringsdict file; raises ValueError."""
    messages: list[Message] = []
    for element in read_elements(text):
        for key, value in zip(element.children, element.children[1:], strict=False):
            name = text[key.content : key.content_end]
            if (key.name, value.name) == ("key", "string") and name in _FORMS:
                said = unescape(text[value.content : value.content_end])
                if has_language(_VARIABLE.sub("", said)):
                    messages.append(Message(value.content, value.content_end, said, escaped))
    return draft_of_messages(text, sorted(messages))


def _said(value: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match["code"], 16)) if match["code"] else _ESCAPES.get(match["one"], match["one"])

    return _ESCAPE.sub(character, value)


def _written(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
