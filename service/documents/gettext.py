"""gettext PO: the entries without a translation get one, marked as fuzzy.

A fuzzy entry is one that somebody still has to look at: msgfmt leaves it out.  Only the lines of `msgstr`, the flags of
these entries and two fields of the header are written anew.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

import polib

from service.documents.draft import Answer, Notice, Part, Passage, Slot, Unit, has_language
from service.documents.messages import format_of_message

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


class _File:
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


def read(text: str, target_language: str = "") -> Part:
    """Return a PO file.

    Raises:
        ValueError: it is no PO file.
    """
    try:
        catalogue = polib.pofile(text + "\n", check_for_duplicates=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"this is no gettext PO file: {error}") from error
    file = _File(text)
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


def _entry_slots(file: _File, begin: int, end: int, num_plurals: int, answers: Sequence[Answer]) -> Iterator[Slot]:
    """Yield what is written of an entry, which is in these lines: the flag and the translations."""
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


def _header_slots(file: _File, end: int, fields: Mapping[str, str]) -> Iterator[Slot]:
    """Yield these fields in the place of those of the header, or behind them; empty ones stay."""
    if file.places(0, end, "msgstr"):
        behind = file.places(0, end, "msgstr", '"')[-1] + 1
        for name, value in fields.items():
            if value:
                known = file.places(0, end, f'"{name}:')
                begin, until = (known[0], known[0] + 1) if known else (behind, behind)
                yield file.slot(begin, until, f'"{name}: {value}\\n"')
