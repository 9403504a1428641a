"""A ZIP file of parts, as Office, OpenDocument and EPUB files are: opened safely, written back with some parts anew.

Every limit holds before the part that breaks it costs memory.  What is not written anew keeps its bytes, compressed as
they are: such parts are never even unpacked.  Knows of what is in the parts only where they say their language.
"""

import io
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, Self
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from model.language_codes import subtags_of
from service.documents.draft import Draft, LanguageMark, Part
from service.documents.xml import require_well_formed

MAX_PARTS = 10_000
MAX_PART_BYTES = 32 << 20  # of a part that is read, unpacked; also of all of them together: some 3,000 pages
MAX_RATIO = 400  # unpacked to packed, of parts from 4 MiB on; repetitive sheets reach 100
_RATIO_FROM = 4 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, of the extra field
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BAD_NAME = re.compile(r"[\x00-\x1f\\:]|\A/|(?:\A|/)\.\.?(?:/|\Z)")
_ENCODING = re.compile(r"""<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""")


@dataclass(frozen=True, slots=True)
class Package:
    """A package that was opened."""

    content: bytes
    entries: Mapping[str, ZipInfo]  # in their order
    ends: Mapping[str, int]  # where the bytes of each entry end, with whatever follows its data

    @classmethod
    def open(cls, content: bytes) -> Self:
        """Return the package; raises ValueError, in one line, for what is none or may be meant to harm."""
        if content.startswith(_OLE):
            raise ValueError("the file is encrypted, or of an Office from before 2007: save it again without either")
        if not content.startswith(b"PK\x03\x04"):
            raise ValueError("the file is no ZIP package: is its suffix right, and is it complete?")
        try:
            with ZipFile(io.BytesIO(content)) as archive:
                entries, directory = archive.infolist(), archive.start_dir
        except (BadZipFile, NotImplementedError, ValueError, struct.error, OverflowError) as error:
            raise ValueError(f"the file is damaged: {str(error) or 'its directory cannot be read'}") from None
        if len(entries) > MAX_PARTS:
            raise ValueError(f"the package has {len(entries):,} parts, at most {MAX_PARTS:,} are accepted")
        names = set[str]()
        for entry in entries:
            _check(entry, names)
        return cls(content, {entry.filename: entry for entry in entries}, _ends(content, entries, directory))

    def read(self, name: str, budget: int = MAX_PART_BYTES) -> bytes:
        """Return a part, unpacked; raises ValueError if it is damaged or has more bytes than `budget`."""
        entry = self.entries[name]
        begin = entry.header_offset + _LOCAL_HEADER.size
        _, name_length, extra_length = _LOCAL_HEADER.unpack(self.content[entry.header_offset : begin])
        begin += name_length + extra_length
        packed = memoryview(self.content)[begin : min(begin + entry.compress_size, self.ends[name])]
        if entry.file_size > budget:
            raise ValueError(f"{name} has {entry.file_size:,} bytes of text, at most {budget:,} are accepted")
        try:
            if entry.compress_type == ZIP_STORED:
                part = bytes(packed[: budget + 1])
            else:
                part = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, budget + 1)
        except zlib.error as error:
            raise ValueError(f"{name} is damaged: {error}") from None
        if len(part) != entry.file_size or zlib.crc32(part) != entry.CRC:
            raise ValueError(f"{name} is damaged: it is not what the directory of the package says")
        return part

    def read_texts(
        self, is_wanted: Callable[[str], bool], document_type: Literal["none", "empty"] | None = "none"
    ) -> dict[str, str]:
        """Return the texts of the wanted parts, which share one limit; raises ValueError.

        Args:
            document_type: as of `require_well_formed`; None: the parts need not be well-formed.
        """
        texts: dict[str, str] = {}
        budget = MAX_PART_BYTES
        for name in filter(is_wanted, self.entries):
            texts[name] = self._text(name, budget)
            if document_type is not None:
                require_well_formed(texts[name], name, document_type=document_type)
            budget -= self.entries[name].file_size
        return texts

    def _text(self, name: str, budget: int) -> str:
        part = self.read(name, budget)
        try:
            text = part.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not valid UTF-8 at byte {error.start}") from None
        encoding = _ENCODING.match(text.removeprefix("\ufeff"))
        if encoding and encoding[1].lower() not in {"utf-8", "us-ascii", "ascii"}:
            raise ValueError(f"{name} is said to be in {encoding[1]}, and UTF-8 is accepted")
        return text

    def with_parts(self, parts: Mapping[str, str]) -> bytes:
        """Return the package with other texts in these parts: all parts in their order, compressed as they were."""
        written = io.BytesIO()
        with ZipFile(written, "w") as archive:
            for name, entry in self.entries.items():
                new = copy(entry)
                if name in parts:
                    new.flag_bits &= ~0x08  # sizes are in the header
                    new.extra = b""
                    archive.writestr(new, parts[name].encode())
                    continue
                new.header_offset = written.tell()
                written.write(memoryview(self.content)[entry.header_offset : self.ends[name]])
                archive.filelist.append(new)
                archive.NameToInfo[name] = new
                archive.start_dir = written.tell()
        return written.getvalue()


def _check(entry: ZipInfo, names: set[str]) -> None:
    """Raise ValueError for an entry that no program writes with good intent; note its name."""
    name = entry.orig_filename
    shown = f"the part {name[:60]!a}"
    if not name or len(name) > 1_000 or _BAD_NAME.search(name):
        raise ValueError(f"{shown} has a name that leads out of the package")
    if name.lower() in names:
        raise ValueError(f"{shown} is there twice")
    names.add(name.lower())
    if entry.flag_bits & 0x1:
        raise ValueError(f"{shown} is encrypted: save the file without a password")
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{shown} is compressed in a way that no such file is (method {entry.compress_type})")
    if entry.file_size > max(_RATIO_FROM, MAX_RATIO * entry.compress_size):
        ratio = entry.file_size // max(1, entry.compress_size)
        raise ValueError(f"{shown} grows {ratio:,} times when it is unpacked, at most {MAX_RATIO} times is accepted")


def _ends(content: bytes, entries: list[ZipInfo], directory: int) -> dict[str, int]:
    """Return where the bytes of each entry end: before the next one, or before the directory of them all."""
    ends: dict[str, int] = {}
    in_place = sorted(entries, key=lambda entry: entry.header_offset)
    for entry, limit in zip(in_place, [*(one.header_offset for one in in_place[1:]), directory], strict=True):
        begin = entry.header_offset + _LOCAL_HEADER.size
        header = content[entry.header_offset : begin]
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
            raise ValueError(f"the file is damaged: nothing is where {entry.filename[:60]!a} should be")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        name = content[begin : begin + name_length].decode("utf-8" if entry.flag_bits & 0x800 else "cp437", "replace")
        if name != entry.orig_filename:  # so that no two programs find different files in it
            raise ValueError(f"the file is damaged: {entry.filename[:60]!a} is called otherwise in its place")
        if begin + name_length + extra_length + entry.compress_size > limit:
            raise ValueError(f"the part {entry.filename[:60]!a} overlaps another one")
        ends[entry.filename] = limit
    return ends


_ASIAN, _BIDI = {"eastAsia", "language-asian", "country-asian"}, {"bidi", "language-complex", "country-complex"}
_SCRIPTS = {"Hans": _ASIAN, "Hant": _ASIAN, "Jpan": _ASIAN, "Kore": _ASIAN, "Arab": _BIDI, "Hebr": _BIDI}


# What a user should know of parts that stay as they are, and how these are named.
_REMARKS = {
    "the file has macros, which stay as they are": re.compile(r"vbaproject\.bin\Z|\A(?:basic|scripts)/", re.IGNORECASE),
    "the file has a digital signature, which does not hold for its translation": re.compile(
        r"\A_xmlsignatures/|\AMETA-INF/documentsignatures\.xml\Z"
    ),
    "the file has other files embedded, which stay as they are": re.compile("/embeddings/|/afchunk", re.IGNORECASE),
}


def draft_of_parts(package: Package, parts: Mapping[str, Part], target_language: str) -> Draft:
    """Return the draft of a package.

    Args:
        parts: those with language, in the order in which they are translated.
        target_language: BCP 47, which the parts say afterwards; empty: they say what they said.
    """
    if target_language:
        _say_language([mark for part in parts.values() for mark in part.languages], target_language)
    return Draft(
        parts,
        lambda texts: package.with_parts({name: text for name, text in texts.items() if text != parts[name].text}),
        tuple(remark for remark, name in _REMARKS.items() if any(map(name.search, package.entries))),
    )


def _say_language(marks: Sequence[LanguageMark], target: str) -> None:
    """Have what says the language that most of a file is in say the target's."""
    subtags = subtags_of(target)
    if subtags is None:
        return
    likely = subtags.likely
    region = subtags.region or likely.region
    apart = _SCRIPTS.get(likely.script, set())  # attributes for scripts that have their own
    counts = Counter(_language(one.language) for one in marks if one.language and one.name not in _ASIAN | _BIDI)
    main = counts.most_common(1)[0][0] if counts else ""
    for one in marks:
        if one.name in _ASIAN | _BIDI:
            is_ours = one.name in apart
        else:
            is_ours = _language(one.language) == main and (not apart or one.name in {"", "lang"})
        if is_ours and one.name.startswith("country"):
            one.written = region
        elif is_ours and one.name.startswith("language"):
            one.written = subtags.language
        elif is_ours:
            one.written = f"{subtags.language}-{region}" if region else subtags.language


def _language(tag: str) -> str:
    return tag.replace("_", "-").partition("-")[0].lower()
