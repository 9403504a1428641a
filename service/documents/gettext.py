"""gettext PO: the entries without a translation get one, marked as fuzzy.

A fuzzy entry is one that somebody still has to look at: msgfmt leaves it out.  Only the lines of `msgstr`, the flags of
these entries and two fields of the header are written anew.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import polib

from service.documents.draft import Draft, Notice, Unit, Written, has_language, text_of
from service.documents.messages import format_of_message
from service.records import Translation, WarningKind

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
_NUM_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)")


class _Entry(NamedTuple):
    """An entry without a translation, and its lines in the file: begin <= i < end, from 0."""

    entry: polib.POEntry
    begin: int
    end: int

    @property
    def sources(self) -> list[str]:
        return [text for text in (self.entry.msgid, self.entry.msgid_plural) if text]

    def units(self) -> list[Unit]:
        """Return what is to be translated: `msgid`, and `msgid_plural` where there is one."""
        return [Unit(text, format_of_message(text), self.begin + 1) for text in self.sources]


@dataclass(frozen=True, slots=True)
class _File:
    lines: list[str]  # with their ends
    entries: list[_Entry]  # those to translate
    header_end: int  # line
    language: str  # of the translations; empty: what the header says
    num_plurals: int | None
    plural_forms: str  # for the header, where it has none
    width: int  # of its lines, in columns
    lost: list[Notice]  # entries with plurals in a language whose number of plurals is not known


def read(text: str, target_language: str = "") -> Draft:
    """Return the draft of a PO file.

    Raises:
        ValueError: it is no PO file.
    """
    try:
        catalogue = polib.pofile(text + "\n", check_for_duplicates=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"this is no gettext PO file: {error}") from error
    lines = text.splitlines(keepends=True)  # as polib counts them
    begins = [max(entry.linenum - 1, 0) for entry in catalogue]
    forms, num_plurals = _plural_forms(catalogue, target_language)
    entries: list[_Entry] = []
    lost: list[Notice] = []
    for entry, begin, end in zip(catalogue, begins, [*begins[1:], len(lines)], strict=False):
        if entry.obsolete or entry.msgstr or any(entry.msgstr_plural.values()) or not has_language(entry.msgid):
            continue
        if entry.msgid_plural and num_plurals is None:
            lost.append(Notice(WarningKind.NOT_TRANSLATED, begin + 1))
        else:
            entries.append(_Entry(entry, begin, end))
    header_end = begins[0] if begins else len(lines)
    strings = (line.rstrip() for line in lines if line.lstrip().startswith(("msg", '"')))
    width = _WRAPPED if all(len(line) <= _WRAPPED + 2 for line in strings) else _NOT_WRAPPED
    file = _File(lines, entries, header_end, target_language, num_plurals, forms, width, lost)
    return Draft(tuple(unit for entry in entries for unit in entry.units()), partial(_write, file))


def _plural_forms(catalogue: polib.POFile, language: str) -> tuple[str, int | None]:
    """Return what the header is to say of plurals, empty where it stays; and their number, None if it is not known."""
    known = _NUM_PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
    if known:
        return "", int(known[1])
    language = re.split("[-_]", language or catalogue.metadata.get("Language", ""))[0].lower()
    for languages, forms in _PLURALS.items():
        if language in languages:
            return f"nplurals={forms};", int(forms[0])
    return "", None


def _write(file: _File, translations: Sequence[Translation]) -> Written:
    """Return the file with these translations of its units."""
    lines = list(file.lines)
    answers = iter(translations)
    is_changed = False
    for entry in file.entries:
        units = entry.units()
        answered = [next(answers) for _ in units]
        texts = [text_of(unit, answer) for unit, answer in zip(units, answered, strict=True)]
        if any(answer.error is not None for answer in answered) or not all(texts):
            continue
        is_changed = True
        lines[entry.begin : entry.end] = [_written(file, entry, texts), *[""] * (entry.end - entry.begin - 1)]
    if is_changed:
        lines[: file.header_end] = _header(file)
    return Written("".join(lines), tuple(file.lost))


def _written(file: _File, entry: _Entry, texts: list[str]) -> str:
    """Return the lines of an entry with its translations and the flag."""
    lines = file.lines[entry.begin : entry.end]
    first = next(place for place, line in enumerate(lines) if line.lstrip().startswith("msgstr"))
    last = max(place for place, line in enumerate(lines) if line.lstrip().startswith(("msgstr", '"')))
    end = _line_end(file.lines)
    translated = [line + end for line in _msgstr(file, entry, texts)]
    if not lines[last].endswith(("\n", "\r")):
        translated[-1] = translated[-1].removesuffix(end)
    return "".join((*_flagged(lines[:first], end), *translated, *lines[last + 1 :]))


def _msgstr(file: _File, entry: _Entry, texts: list[str]) -> list[str]:
    if entry.entry.msgid_plural:
        assert file.num_plurals is not None
        singular, plural = texts
        forms = dict.fromkeys(range(file.num_plurals), plural)
        if file.num_plurals > 1:
            forms[0] = singular
        rendered = polib.POEntry(msgid=entry.entry.msgid, msgid_plural="x", msgstr_plural=forms)
    else:
        rendered = polib.POEntry(msgid="x", msgstr=texts[0])
    lines: list[str] = rendered.__unicode__(file.width).split("\n")
    first = next(place for place, line in enumerate(lines) if line.startswith("msgstr"))
    return [line for line in lines[first:] if line]


def _flagged(lines: list[str], end: str) -> Iterator[str]:
    """Yield the lines of an entry before its `msgstr`, with the flag `fuzzy`."""
    flags = next((place for place, line in enumerate(lines) if line.startswith("#,")), None)
    if flags is not None:
        yield from lines[:flags]
        yield lines[flags] if re.search(r"\bfuzzy\b", lines[flags]) else "#, fuzzy," + lines[flags][len("#,") :]
        yield from lines[flags + 1 :]
        return
    first = next(place for place, line in enumerate(lines) if line.startswith("#|") or line.lstrip().startswith("msg"))
    yield from lines[:first]
    yield f"#, fuzzy{end}"
    yield from lines[first:]


def _header(file: _File) -> list[str]:
    """Return the header's lines with the language, and with the forms of plurals where it has none."""
    lines = file.lines[: file.header_end]
    if not any(line.lstrip().startswith("msgstr") for line in lines):
        return lines
    if file.language:
        lines = _with_field(lines, "Language", file.language.replace("-", "_"))
    if file.plural_forms and any(entry.entry.msgid_plural for entry in file.entries):
        lines = _with_field(lines, "Plural-Forms", file.plural_forms)
    return lines


def _with_field(lines: list[str], name: str, value: str) -> list[str]:
    end = _line_end(lines)
    field = f'"{name}: {value}\\n"{end}'
    for place, line in enumerate(lines):
        if line.startswith(f'"{name}:'):
            return [*lines[:place], field, *lines[place + 1 :]]
    last = max(place for place, line in enumerate(lines) if line.lstrip().startswith(("msgstr", '"')))
    return [*lines[: last + 1], field, *lines[last + 1 :]]


def _line_end(lines: list[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
