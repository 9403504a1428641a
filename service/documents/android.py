"""Android's string resources: strings, items of arrays and plurals, with the escapes that a resource needs."""

import re
from collections.abc import Sequence

from service.documents.draft import Draft, has_language
from service.documents.messages import Message, draft_of_messages
from service.documents.xml import Element
from service.records import TextFormat

_CDATA = re.compile(r"(\s*<!\[CDATA\[)(.*)(\]\]>\s*)", re.DOTALL)
_TAG = re.compile(r"(<[^<>]*>)")
_QUOTE = re.compile(r"(?<!\\)((?:\\\\)*+)(['\"])")
_KEPT = re.compile(r"<xliff:g(?=[\s>])")
_MARK = '  translate="no"'  # two spaces: it is known again, and taken out
_ARRAYS = frozenset({"string-array", "plurals"})


def read(text: str, elements: Sequence[Element]) -> Draft:
    """Return the draft of a file of resources, whose elements these are."""
    messages: list[Message] = []
    for element in elements:
        is_item = element.name == "item" and element.parent is not None and element.parent.name in _ARRAYS
        if not (is_item or element.name == "string") or not element.is_translated:
            continue
        content, begin, end, kind = element.content, element.content, element.content_end, TextFormat.XML
        said = text[begin:end]
        if data := _CDATA.fullmatch(said):
            begin, end, kind = content + data.start(2), content + data.end(2), TextFormat.HTML
        elif said.lstrip()[:1] in ("@", "?"):  # which refer to other resources
            continue
        if has_language(_TAG.sub("", text[begin:end])):
            marked = _KEPT.sub(lambda match: match[0] + _MARK, text[begin:end])
            messages.append(Message(begin, end, marked, _written, kind))
    return draft_of_messages(text, messages)


def _written(text: str) -> str:
    """Return a text whose quotes are escaped, unless quotes are around all of it."""
    text = text.replace(_MARK, "")
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return text
    parts = (part if part.startswith("<") else _QUOTE.sub(r"\1\\\2", part) for part in _TAG.split(text))
    return re.sub(r"\A(\s*)([@?])", r"\1\\\2", "".join(parts))
