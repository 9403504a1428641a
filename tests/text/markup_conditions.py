"""What must hold of markup: the same tags, as well nested as before; what is not language, byte by byte.

A scanner of a few lines stands in for a parser, so that these conditions share nothing with the code that they judge.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape
from xml.parsers import expat

from service.records import TextFormat, Translation
from tests.text.corpus import Case

_RAW = "script|style|textarea|pre|code|kbd|samp|var|svg|template"  # whose text nobody has to translate
_TAG = r"""</?[A-Za-z](?:[^<>"']|"[^"]*"|'[^']*')*>"""
MARKUP = re.compile(rf"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[?!][^>]*>|{_TAG}", re.DOTALL)
_RAW_ELEMENT = re.compile(rf"(?is)<({_RAW})\b[^>]*>.*?</\1\s*>")
_SCRIPT = re.compile(r"(?is)<(script|style)\b[^>]*>.*?</\1\s*>")
_STAYS = re.compile(
    r"(?is)<(?P<name>[a-z]\w*)\b[^>]*(?:translate\s*=\s*[\"']?no\b|class\s*=\s*[\"']?(?:[^\"'>]*\s)?notranslate(?=[\s\"'>]))"
    r"[^>]*>.*?</(?P=name)\s*>"
)
_PROTECTED_ELEMENT = re.compile(
    r"(?s)<(ph|bpt|ept|it)\b[^>]*[^/]>.*?</\1>|<mrk\b[^>]*(?:protected|\"no\")[^>]*>.*?</mrk>"
)
_LANGUAGE_ATTRIBUTE = re.compile(
    r"""(?i)(\s(?:alt|title|placeholder|aria-label|label|summary|content)\s*=\s*)("[^"]*"|'[^']*'|[^\s"'>]+)"""
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
_BARE_AMPERSAND = re.compile(r"&(?!#?\w+;)")
_NAME = re.compile(r"</?([^\s/>]+)")
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)

MarkupCondition = Callable[[Case, Translation], Iterator[str]]


def keeps_tags(case: Case, answer: Translation) -> Iterator[str]:
    """The same tags, comments and instructions, letter by letter but for the attributes that are language."""
    if not _is_judged(case):
        return
    was, now = Counter(tags(case.text)), Counter(tags(answer.text))
    if was != now:
        yield f"tags lost: {list((was - now).elements())}, tags added: {list((now - was).elements())}"


def tags(text: str) -> list[str]:
    """Return every piece of markup in order, without the values of attributes that are language."""
    without_scripts = _SCRIPT.sub(lambda found: "\0" * len(found.group()), text)
    return [_LANGUAGE_ATTRIBUTE.sub(r"\1", found.group()) for found in MARKUP.finditer(without_scripts)]


def stays_well_formed(case: Case, answer: Translation) -> Iterator[str]:
    """What is well-formed stays so."""
    if case.format is TextFormat.PLAIN:
        return
    is_well_formed = is_nested if case.format is TextFormat.HTML else is_xml
    if is_well_formed(case.text) and not is_well_formed(answer.text):
        yield f"well-formed markup became {answer.text!r}"


def is_nested(text: str) -> bool:
    """Say whether every end tag closes the element that was opened last, and none stays open."""
    opened: list[str] = []
    for tag in tags(text):
        found = _NAME.match(tag)
        name = found.group(1).lower() if found else ""
        if not found or name in _VOID or name.startswith(("!", "?")) or tag.endswith("/>"):
            continue
        if not tag.startswith("</"):
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


def is_xml(text: str) -> bool:
    """Say whether the text is well-formed XML, a document or the content of an element."""
    return any(_parses(candidate) for candidate in (text, f"<root>{text}</root>"))


def _parses(text: str) -> bool:
    try:
        expat.ParserCreate().Parse(text, True)
    except expat.ExpatError:
        return False
    return True


def keeps_what_stays(case: Case, answer: Translation) -> Iterator[str]:
    """Scripts, styles, code, preformatted text and what is marked to stay come back byte by byte."""
    if not _is_judged(case) or case.format is not TextFormat.HTML:
        return
    for pattern in (re.compile(r"(?is)<(script|style|pre|code)\b[^>]*>.*?</\1\s*>"), _STAYS):
        for found in pattern.finditer(case.text):
            if "<p" not in found.group() and case.text.count(found.group()) != answer.text.count(found.group()):
                yield f"{found.group()!r} did not come back"


def escapes_once(case: Case, answer: Translation) -> Iterator[str]:
    """Characters that would be markup are escaped, as often as before, and not twice."""
    if not _is_judged(case):
        return
    was, now = (_without_markup(text) for text in (case.text, answer.text))
    for name, pattern in (
        ("a bare &", _BARE_AMPERSAND),
        ("a bare <", re.compile("<")),
        ("&amp;amp;", re.compile("&amp;amp;")),
    ):
        old, new = len(pattern.findall(was)), len(pattern.findall(now))
        if new > old:
            yield f"{name} is {old} times in the text and {new} times in the translation"
    shown = [unescape(unescape(text)) == unescape(text) for text in (was, now)]
    if shown == [True, False]:
        yield f"something is escaped twice in {now!r}"


def translates_attributes(case: Case, answer: Translation) -> Iterator[str]:
    """The values that are language are in segments: of their own, or of the sentence that their tag stands in."""
    segments = [case.text[segment.source.begin : segment.source.end] for segment in answer.segments]
    for value in case.translated:
        if not any(value in segment for segment in segments):
            yield f"the attribute's value {value!r} is in no segment; segments: {segments}"


def language_of(text: str) -> str:
    """Return the text with everything that is not surely language as NUL, each character at its place."""
    for pattern in (_RAW_ELEMENT, _STAYS, _PROTECTED_ELEMENT, MARKUP, _ENTITY):
        text = pattern.sub(lambda found: "\0" * len(found.group()), text)
    return text


def _without_markup(text: str) -> str:
    return MARKUP.sub(" ", _SCRIPT.sub(" ", text))


def _is_judged(case: Case) -> bool:
    return case.format is not TextFormat.PLAIN and not case.is_broken


MARKUP_CONDITIONS: tuple[MarkupCondition, ...] = (
    keeps_tags,
    stays_well_formed,
    keeps_what_stays,
    escapes_once,
    translates_attributes,
)
