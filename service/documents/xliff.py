"""XLIFF 1.2 and 2: sources without a translation get a target, with the state "translated" where it is one."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from service.documents.draft import Draft, Lines, Slot, Unit, Written, filled, has_language, text_of
from service.documents.xml import Element, read_elements
from service.records import TextFormat, Translation, WarningKind

_TO_DO = ("new", "needs-translation", "initial")  # states of targets that are written over
_UNTRANSLATED = frozenset({WarningKind.NOT_TRANSLATED, WarningKind.EMPTY, WarningKind.COPIED})
_TAG = re.compile(r"<[^>]*>")


class _Pair(NamedTuple):
    """A source and the place of its target."""

    source: Element
    target: Element | None
    segment: Element | None  # in XLIFF 2, has the state


def read(text: str, target_language: str = "") -> Draft:
    """Return the draft of an XLIFF file.

    Raises:
        ValueError: it is no XLIFF 1.2 or 2.
    """
    elements = read_elements(text)
    root = elements[0]
    version = root.attributes.get("version", "")
    if root.name != "xliff" or version.split(".")[0] not in {"1", "2"}:
        raise ValueError(f"the file is no XLIFF 1.2 or 2: it begins with {root.name} of version {version or 'none'}")
    holder = "segment" if version[0] == "2" else "trans-unit"
    pairs = [pair for element in elements if element.name == holder and (pair := _pair(element, text))]
    lines = Lines(text)
    units = tuple(
        Unit(text[pair.source.content : pair.source.content_end], TextFormat.XLIFF, lines.number(pair.source.begin))
        for pair in pairs
    )
    return Draft(units, partial(_write, text, elements, pairs, units, target_language))


def _pair(holder: Element, text: str) -> _Pair | None:
    """Return the source and the target of a unit, None where there is nothing to do."""
    named = {child.name: child for child in holder.children}
    source, target = named.get("source"), named.get("target")
    if source is None or not holder.is_translated or holder.attributes.get("approved") == "yes":
        return None
    if not has_language(_TAG.sub("", text[source.content : source.content_end])):
        return None
    segment = holder if holder.name == "segment" else None
    state = (segment or target or holder).attributes.get("state")
    is_empty = target is None or not text[target.content : target.content_end].strip()
    is_to_do = is_empty or state in _TO_DO
    return _Pair(source, target, segment) if is_to_do else None


def _write(
    text: str,
    elements: Sequence[Element],
    pairs: Sequence[_Pair],
    units: Sequence[Unit],
    language: str,
    translations: Sequence[Translation],
) -> Written:
    slots: list[Slot] = []
    for pair, unit, translation in zip(pairs, units, translations, strict=True):
        if translation.error is None:
            is_translated = _UNTRANSLATED.isdisjoint(warning.kind for warning in translation.warnings)
            slots += _slots(text, pair, text_of(unit, translation), is_translated=is_translated)
    if slots and language:
        name, attribute = ("file", "target-language") if pairs[0].segment is None else ("xliff", "trgLang")
        for element in elements:
            if element.name == name and attribute.lower() not in element.attributes:
                slots.append(_with_attribute(text, element, attribute, language))
    return Written(filled(text, sorted(slots)))


def _slots(text: str, pair: _Pair, translation: str, *, is_translated: bool) -> Iterator[Slot]:
    """Yield what is written of a pair: its target and, in XLIFF 2, the state of the segment."""
    source, target, segment = pair
    tag = f"<{source.prefix}target>"
    if target is not None:
        tag = text[target.begin : target.content].replace("/>", ">")
    if segment is None:
        tag = _tag_with(tag, "state", "translated" if is_translated else "needs-translation")
    else:
        yield _with_attribute(text, segment, "state", "translated" if is_translated else "initial")
    written = f"{tag}{translation}</{source.prefix}target>"
    if target is not None:
        yield Slot(target.begin, target.end, written)
    else:
        begin = source.begin
        while text[begin - 1].isspace():
            begin -= 1
        yield Slot(source.end, source.end, text[begin : source.begin] + written)


def _with_attribute(text: str, element: Element, name: str, value: str) -> Slot:
    return Slot(element.begin, element.content, _tag_with(text[element.begin : element.content], name, value))


def _tag_with(tag: str, name: str, value: str) -> str:
    """Return a start tag with this value of the attribute."""
    known = re.compile(rf"""(\s{name}\s*=\s*)(?:"[^"]*"|'[^']*')""")
    if known.search(tag):
        return known.sub(rf'\g<1>"{value}"', tag)
    end = "/>" if tag.endswith("/>") else ">"
    return f'{tag.removesuffix(end).rstrip()} {name}="{value}"{end}'
