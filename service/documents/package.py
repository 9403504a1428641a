"""A ZIP file of parts, as Office, OpenDocument and EPUB files are: opened safely, written back with some parts anew.

Every limit holds before the part that breaks it costs memory.  What is not written anew keeps its bytes, compressed as
they are: such parts are never even unpacked.  Knows nothing of what is in the parts.
"""

import io
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Self
from xml.parsers import expat
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

MAX_PARTS = 10_000
MAX_PART_BYTES = 32 << 20  # of a part that is read, unpacked; also of all of them together: some 3,000 pages
MAX_RATIO = 400  # unpacked to packed, of parts from 4 MiB on; repetitive sheets reach 100
_RATIO_FROM = 4 << 20
_PIECE = 256 << 10  # that expat takes at a time: it lets no other thread run meanwhile
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
        self, is_wanted: Callable[[str], bool], *, is_xml: bool = True, allows_type: bool = False
    ) -> dict[str, str]:
        """Return the texts of the wanted parts, which share one limit; raises ValueError.

        Args:
            is_xml: whether they have to be well-formed, without a document type unless `allows_type`.
        """
        texts: dict[str, str] = {}
        budget = MAX_PART_BYTES
        for name in filter(is_wanted, self.entries):
            texts[name] = self._text(name, budget)
            if is_xml:
                require_plain_xml(texts[name], name, allows_type=allows_type)
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


def require_plain_xml(text: str, name: str, *, allows_type: bool = False) -> None:
    """Raise ValueError if a text is no well-formed XML, or has a document type, whose entities can be bombs.

    Args:
        name: what messages call it.
        allows_type: whether there may be a document type without declarations of its own.
    """
    parser = expat.ParserCreate("UTF-8")

    def refuse_type(_: str, __: str | None, ___: str | None, has_subset: int) -> None:
        if has_subset or not allows_type:
            raise ValueError(f"{name} has a document type (DTD), which can hide a bomb: none is accepted")

    parser.StartDoctypeDeclHandler = refuse_type
    content = text.encode()
    try:
        for begin in range(0, len(content), _PIECE):
            parser.Parse(content[begin : begin + _PIECE])
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise ValueError(f"{name} is no well-formed XML: {error}") from None


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
