"""Strings of programs: Java's properties, Apple's .strings and .stringsdict, Android's resources, gettext PO."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import unescape
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from service.documents.draft import Answer, Lines, Notice, Part, Passage, Slot, Unit, has_language
from service.documents.inline import escaped
from service.documents.message_files import Message, format_of_message, part_of_messages
from service.documents.xml import Element, read_tree, translated_elements
from service.records import TextFormat

if TYPE_CHECKING:
    import polib

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


# GNU gettext manual, section 12.6 "Additional functions for plural forms".
_RUSSIAN = "3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2)"
_PLURALS = {
    ("ja", "ko", "zh", "vi", "th", "id"): "1; plural=0",
    ("de", "en", "nl", "sv", "da", "nb", "nn", "es", "it", "pt", "el", "fi", "et", "hu", "bg"): "2; plural=(n != 1)",
    ("fr",): "2; plural=(n > 1)",
    ("ru", "uk", "be", "sr", "hr", "bs"): _RUSSIAN,
    ("pl",): "3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2)",
    ("cs", "sk"): "3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2",
}
_WRAPPED = 78  # columns, as gettext's own programs wrap; a file with longer lines is not wrapped
_NOT_WRAPPED = 1_000_000
_PLURALS_UNKNOWN = "how many plural forms the language has is not known: write Plural-Forms into the header of the file"
_NUM_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)")


class _Lines:
    """The lines of a file, as polib counts them, and how new ones are written."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self._begins = list(accumulate(map(len, self.lines), initial=0))
        self._line_end = "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"
        strings = (line.rstrip() for line in self.lines if line.lstrip().startswith(("msg", '"')))
        self.width = _WRAPPED if all(len(line) <= _WRAPPED + 2 for line in strings) else _NOT_WRAPPED

    def places(self, begin: int, end: int, *starts: str) -> list[int]:
        """Return which of these lines, begin <= i < end, begin so."""
        return [place for place in range(begin, end) if self.lines[place].lstrip().startswith(starts)]

    def slot(self, begin: int, end: int, *lines: str) -> Slot:
        """Return lines in the place of those begin <= i < end; the last one of a file may have no end."""
        text = "".join(line + self._line_end for line in lines)
        if begin < end and not self.lines[end - 1].endswith(("\n", "\r")):
            text = text.removesuffix(self._line_end)
        return Slot(self._begins[begin], self._begins[end], text)


def read_po(text: str, target_language: str = "") -> Part:
    """Return a PO file, whose entries without a translation get one, marked as fuzzy; raises ValueError.

    A fuzzy entry is one that somebody still has to look at: msgfmt leaves it out.  Only the lines of `msgstr`, the
    flags of these entries and two fields of the header are written anew.
    """
    import polib

    try:
        catalogue = polib.pofile(text + "\n", check_for_duplicates=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"this is no gettext PO file: {error}") from error
    file = _Lines(text)
    begins = [max(entry.linenum - 1, 0) for entry in catalogue]
    forms, num_plurals = _plural_forms(catalogue, target_language)
    part = Part(text)
    fields = {"Language": target_language.replace("-", "_")}
    for entry, begin, end in zip(catalogue, begins, [*begins[1:], len(file.lines)], strict=False):
        if entry.obsolete or entry.msgstr or any(entry.msgstr_plural.values()) or not has_language(entry.msgid):
            continue
        if entry.msgid_plural and num_plurals is None:
            part.lost.append(Notice(begin + 1, _PLURALS_UNKNOWN, entry.msgid))
            continue
        if entry.msgid_plural:
            fields["Plural-Forms"] = forms
        sources = filter(None, (entry.msgid, entry.msgid_plural))
        units = tuple(Unit(source, format_of_message(source), begin + 1) for source in sources)
        write = partial(_entry_slots, file, begin, end, num_plurals or 1)
        part.passages.append(Passage(units, write, is_beside=True))
    part.also += _header_slots(file, begins[0] if begins else len(file.lines), fields)
    return part


def _plural_forms(catalogue: "polib.POFile", language: str) -> tuple[str, int | None]:
    """Return what the header is to say of plurals, empty where it stays; and their number, None if it is not known."""
    known = _NUM_PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
    if known:
        return "", int(known[1])
    language = re.split("[-_]", language or catalogue.metadata.get("Language", ""))[0].lower()
    for languages, forms in _PLURALS.items():
        if language in languages:
            return f"nplurals={forms};", int(forms[0])
    return "", None


def _entry_slots(file: _Lines, begin: int, end: int, num_plurals: int, answers: Sequence[Answer]) -> Iterator[Slot]:
    """Yield what is written of an entry, which is in these lines: the flag and the translations."""
    import polib

    texts = [answer.text for answer in answers]
    if not all(texts):
        return
    flags = file.places(begin, end, "#,")
    if not flags:
        first = file.places(begin, end, "#|", "msg")[0]
        yield file.slot(first, first, "#, fuzzy")
    elif not re.search(r"\bfuzzy\b", line := file.lines[flags[0]]):
        yield file.slot(flags[0], flags[0] + 1, f"#, fuzzy,{line.strip()[len('#,') :]}")
    if len(texts) > 1:
        forms = dict.fromkeys(range(num_plurals), texts[1]) | ({0: texts[0]} if num_plurals > 1 else {})
        rendered = polib.POEntry(msgid="x", msgid_plural="x", msgstr_plural=forms)
    else:
        rendered = polib.POEntry(msgid="x", msgstr=texts[0])
    written: list[str] = rendered.__unicode__(file.width).split("\n")
    first = next(place for place, line in enumerate(written) if line.startswith("msgstr"))
    last = file.places(begin, end, "msgstr", '"')[-1]
    yield file.slot(file.places(begin, end, "msgstr")[0], last + 1, *filter(None, written[first:]))


def _header_slots(file: _Lines, end: int, fields: Mapping[str, str]) -> Iterator[Slot]:
    """Yield these fields in the place of those of the header, or behind them; empty ones stay."""
    if file.places(0, end, "msgstr"):
        behind = file.places(0, end, "msgstr", '"')[-1] + 1
        for name, value in fields.items():
            if value:
                known = file.places(0, end, f'"{name}:')
                begin, until = (known[0], known[0] + 1) if known else (behind, behind)
                yield file.slot(begin, until, f'"{name}: {value}\\n"')
