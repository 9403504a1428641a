"""Android's string resources: strings, items of arrays and plurals, with the escapes that a resource needs."""

import re
from collections.abc import Sequence

from service.documents.draft import Draft, Slot, Unit, Written, filled, has_language, line_of, text_of
from service.documents.xml_tree import Element
from service.records import TextFormat, Translation

_CDATA = re.compile(r"(\s*<!\[CDATA\[)(.*)(\]\]>\s*)", re.DOTALL)
_TAG = re.compile(r"(<[^<>]*>)")
_QUOTE = re.compile(r"(?<!\\)((?:\\\\)*+)(['\"])")
_KEPT = re.compile(r"<xliff:g(?=[\s>])")
_MARK = '  translate="no"'  # two spaces: it is known again, and taken out
_ARRAYS = frozenset({"string-array", "plurals"})


def read(text: str, elements: Sequence[Element]) -> Draft:
    """Return the draft of a file of resources, whose elements these are."""
    places: list[tuple[int, int, TextFormat]] = []
    for element in elements:
        is_item = element.name == "item" and element.parent is not None and element.parent.name in _ARRAYS
        if not (is_item or element.name == "string") or not element.is_translated:
            continue
        content = text[element.content : element.content_end]
        if data := _CDATA.fullmatch(content):
            places.append((element.content + data.start(2), element.content + data.end(2), TextFormat.HTML))
        elif content.lstrip()[:1] not in ("@", "?"):  # which refer to other resources
            places.append((element.content, element.content_end, TextFormat.XML))
    places = [place for place in places if has_language(_TAG.sub("", text[place[0] : place[1]]))]
    units = tuple(
        Unit(_KEPT.sub(lambda match: match[0] + _MARK, text[begin:end]), kind, line_of(text, begin))
        for begin, end, kind in places
    )

    def write(translations: Sequence[Translation]) -> Written:
        slots: list[Slot] = []
        for (begin, end, _), unit, translation in zip(places, units, translations, strict=True):
            new = text_of(unit, translation)
            if new != unit.text:
                slots.append(Slot(begin, end, _written(new.replace(_MARK, ""))))
        return Written(filled(text, slots))

    return Draft(units, write)


def _written(text: str) -> str:
    """Return a text whose quotes are escaped, unless quotes are around all of it."""
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return text
    parts = (part if part.startswith("<") else _QUOTE.sub(r"\1\\\2", part) for part in _TAG.split(text))
    return re.sub(r"\A(\s*)([@?])", r"\1\\\2", "".join(parts))
