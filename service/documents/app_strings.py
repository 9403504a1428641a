"""Strings of programs: Java's properties, Apple's .strings and .stringsdict, Android's resources.

Messages as those of `messages.py`, most of which escape characters with backslashes.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from html import unescape
from itertools import pairwise

from service.documents.draft import Lines, Part, has_language
from service.documents.inline import escaped
from service.documents.messages import Message, part_of_messages
from service.documents.xml import Element, read_tree, translated_elements
from service.records import TextFormat

_ESCAPE = re.compile(r"\\(?:[Uu](?P<code>[0-9A-Fa-f]{4})|(?P<line>\r?\n[ \t\f]*+|\r[ \t\f]*+)|(?P<one>.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_JAVA = str.maketrans({"\\": "\\\\", **{character: f"\\{letter}" for letter, character in _ESCAPES.items()}})
_APPLE = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"})
_ANDROID = {**_APPLE, ord("'"): "\\'"}


def _unescaped(value: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match["code"]:
            return chr(int(match["code"], 16))
        return "" if match["line"] is not None else _ESCAPES.get(match["one"], match["one"])

    return _ESCAPE.sub(character, value)


_PROPERTY_LINE = re.compile(
    r"[ \t\f]*+(?P<comment>[#!][^\r\n]*+)?(?P<content>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*+)(?:\r\n|\r|\n|\Z)"
)
_PROPERTY_KEY = re.compile(r"(?:[^\\\s=:]|\\.)++[ \t\f]*+(?:[=:][ \t\f]*+)?", re.DOTALL)
_ARGUMENT = re.compile(r"\{\d")


def read_properties(text: str, _: str = "") -> Part:
    """Return a file of Java's properties; values with arguments, of MessageFormat, double their apostrophes."""
    messages: list[Message] = []
    at = 0
    is_ascii = text.isascii()
    while at < len(text):
        line = _PROPERTY_LINE.match(text, at)
        assert line is not None
        at = max(line.end(), at + 1)
        if line["comment"] is None and (key := _PROPERTY_KEY.match(text, line.start("content"), line.end("content"))):
            said = _unescaped(text[key.end() : line.end("content")])
            write = partial(_property, is_ascii=is_ascii, has_arguments=bool(_ARGUMENT.search(said)))
            messages.append(Message(key.end(), line.end("content"), said, write))
    return part_of_messages(text, messages)


def _property(text: str, *, is_ascii: bool, has_arguments: bool) -> str:
    if has_arguments:
        text = re.sub(r"(?<!')'(?!')", "''", text)
    text = text.translate(_JAVA)
    if text.startswith(" "):
        text = "\\" + text
    if is_ascii:  # an escape has one of UTF-16's units, as in JSON
        return "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in text)
    return text


_ENTRY = re.compile(
    r"""\s*+(?:/\*.*?\*/|//[^\n]*+|(?:"(?:[^"\\]|\\.)*+"|[\w.$-]++)\s*+=\s*+"(?P<value>(?:[^"\\]|\\.)*+)"\s*+;)|\s++\Z""",
    re.DOTALL,
)


def read_strings(text: str, _: str = "") -> Part:
    """Return a file of Apple's .strings; raises ValueError."""
    messages: list[Message] = []
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise ValueError(f"the file is no .strings file: line {Lines(text).number(at)} is no entry")
        if entry["value"] is not None:
            messages.append(Message(*entry.span("value"), _unescaped(entry["value"]), _apple))
        at = entry.end()
    return part_of_messages(text, messages)


def _apple(text: str) -> str:
    return text.translate(_APPLE)


_FORMS = frozenset({"zero", "one", "two", "few", "many", "other", "NSStringLocalizedFormatKey"})
_VARIABLE = re.compile(r"%(?:\d+\$)?#@\w+@")


def read_stringsdict(text: str, _: str = "") -> Part:
    """Return a file of Apple's .stringsdict, the forms of plurals and widths; raises ValueError."""
    messages: list[Message] = []
    for element in translated_elements(read_tree(text), text):
        for key, value in pairwise(element.elements):
            said = unescape(text[value.content : value.content_end])
            is_form = (key.name, value.name) == ("key", "string") and (key.text in _FORMS or key.text.isdigit())
            if is_form and has_language(_VARIABLE.sub("", said)):
                messages.append(Message(value.content, value.content_end, said, escaped))
    return part_of_messages(text, sorted(messages))


_CDATA = re.compile(r"(\s*<!\[CDATA\[)(.*)(\]\]>\s*)", re.DOTALL)
_TAG = re.compile(r"(<[^<>]*>)")
# Without quotes around all of a text, Android shows one space for many, and no quotes.
_SPACES, _QUOTE = re.compile(r"\s+"), re.compile(r'(?<!\\)"')
_KEPT = re.compile(r"<xliff:g(?=[\s>])")
_MARK = '  translate="no"'  # two spaces: it is known again, and taken out
_ARRAYS = frozenset({"string-array", "plurals"})


def read_resources(text: str, root: Element) -> Part:
    """Return a file of Android's resources: strings, items of arrays and plurals, with their escapes."""
    messages: list[Message] = []
    for element in translated_elements(root, text):
        if element.name == "string":
            messages += _resource(text, element)
        elif element.name in _ARRAYS:
            messages += (found for item in element.elements if item.name == "item" for found in _resource(text, item))
    return part_of_messages(text, messages)


def _resource(text: str, element: Element) -> Iterator[Message]:
    begin, end, text_format = element.content, element.content_end, TextFormat.XML
    if data := _CDATA.fullmatch(text[begin:end]):
        begin, end, text_format = begin + data.start(2), begin + data.end(2), TextFormat.HTML
    elif text[begin:end].lstrip()[:1] in ("@", "?"):  # which refer to other resources
        return
    said = text[begin:end].strip()
    begin = text.index(said, begin)
    end = begin + len(said)
    if is_quoted := len(said) > 1 and said[0] == said[-1] == '"' and said[-2] != "\\":
        begin, end, said = begin + 1, end - 1, said[1:-1]
    if has_language(_TAG.sub("", said)):
        parts = (
            part if part.startswith("<") else _unescaped(part if is_quoted else _QUOTE.sub("", _SPACES.sub(" ", part)))
            for part in _TAG.split(said)
        )
        marked = _KEPT.sub(lambda match: match[0] + _MARK, "".join(parts))
        yield Message(begin, end, marked, _escaped_resource, text_format)


def _escaped_resource(text: str) -> str:
    parts = (part if part.startswith("<") else part.translate(_ANDROID) for part in _TAG.split(text.replace(_MARK, "")))
    return re.sub(r"\A([@?])", r"\\\1", "".join(parts))
