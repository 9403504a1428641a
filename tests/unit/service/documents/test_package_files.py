"""Packages: what comes back byte for byte, and what is refused before it costs memory."""

import io
import struct
import tracemalloc
import zipfile
import zlib

import pytest

from service.documents import package
from tests.fakes.packages import draft_of, office, open_text, packed, parts_of, word
from tests.fakes.shouting import echoed, shouted

BODY = "<w:p><w:r><w:t>The cat sleeps.</w:t></w:r></w:p>"


def test_package_comes_back_byte_for_byte_where_every_translation_is_its_source():
    for content, name in ((word(BODY), "docx"), (open_text("<text:p>The cat sleeps.</text:p>"), "odt")):
        assert echoed(draft_of(content, name)).content == content


def test_parts_without_language_keep_their_compressed_bytes_order_and_method():
    stored, level_9 = io.BytesIO(), zlib.compressobj(9, zlib.DEFLATED, -15)
    packed_noise = level_9.compress(b"noise " * 99) + level_9.flush()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr("mimetype", "application/x", zipfile.ZIP_STORED)
        archive.writestr("[Content_Types].xml", "<Types/>", zipfile.ZIP_STORED)
        archive.writestr("word/document.xml", parts_of(word(BODY))["word/document.xml"], zipfile.ZIP_DEFLATED)
        archive.writestr("media/noise.bin", b"noise " * 99, zipfile.ZIP_DEFLATED, compresslevel=9)
    source = stored.getvalue()

    written = shouted(draft_of(source, "docx")).content

    with zipfile.ZipFile(io.BytesIO(written)) as archive, zipfile.ZipFile(io.BytesIO(source)) as before:
        assert archive.namelist() == before.namelist()
        methods = [entry.compress_type for entry in archive.infolist()]
        assert methods == [entry.compress_type for entry in before.infolist()]
        assert [entry.date_time for entry in archive.infolist()] == [entry.date_time for entry in before.infolist()]
    assert packed_noise in source
    assert packed_noise in written
    assert b"THE CAT SLEEPS." in parts_of(written)["word/document.xml"].encode()


def test_package_of_a_stream_with_sizes_behind_its_data_comes_back():
    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts_of(word(BODY)).items():
            archive.writestr(name, text)

    assert "THE CAT" in parts_of(shouted(draft_of(stream.getvalue(), "docx")).content)["word/document.xml"]


def patched(content: bytes, begin: int, form: str, value: int) -> bytes:
    """The package with a number in the central directory's record of its last entry changed."""
    at = content.rindex(b"PK\x01\x02") + begin
    return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]


def renamed(name: str) -> bytes:
    return packed({"[Content_Types].xml": "<Types/>", name: "<a/>"})


def of_document(text: str | bytes, **others: str) -> bytes:
    return packed({"[Content_Types].xml": "<Types/>", "word/document.xml": text, **others})


GOOD = word(BODY)
_BOMB = '<!DOCTYPE w [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><w>&b;</w>'
_ENTITY = '<!DOCTYPE w [<!ENTITY a SYSTEM "file:///etc/passwd">]><w>&a;</w>'
_MANIFEST = {"META-INF/manifest.xml": "<m><encryption-data/></m>", "content.xml": "<a/>"}
_BOOK = {
    "META-INF/container.xml": "<c/>",
    "META-INF/encryption.xml": '<e><CipherReference URI="a.xhtml"/></e>',
    "a.xhtml": "x",
}
HOSTILE = {
    "no package": ("docx", b"hello", "no ZIP package"),
    "old or encrypted Office": ("docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "encrypted, or of an Office"),
    "cut off": ("docx", GOOD[:-30], "damaged"),
    "nothing inside": ("docx", b"PK\x03\x04", "damaged"),
    "another kind of package": ("docx", packed({"a.txt": "x"}), "no Office file"),
    "no OpenDocument": ("odt", packed({"a.txt": "x"}), "no OpenDocument file"),
    "no EPUB": ("epub", packed({"a.txt": "x"}), "no EPUB"),
    "encrypted entry": ("docx", patched(GOOD, 8, "<H", 1), "encrypted: save the file without a password"),
    "encrypted OpenDocument": ("odt", packed(_MANIFEST), "encrypted: save it without a password"),
    "protected book": ("epub", packed(_BOOK), "DRM"),
    "parent directory": ("docx", renamed("word/../../../etc/x.xml"), "leads out of the package"),
    "absolute path": ("docx", renamed("/etc/x.xml"), "leads out of the package"),
    "path of Windows": ("docx", renamed("C:x.xml"), "leads out of the package"),
    "two of a name": (
        "docx",
        packed({"[Content_Types].xml": "<T/>", "word/A.xml": "<a/>", "word/a.xml": "<a/>"}),
        "twice",
    ),
    "unknown compression": ("docx", patched(GOOD, 10, "<H", 12), "method 12"),
    "size that is not true": ("docx", patched(GOOD, 24, "<I", 7), "damaged"),
    "ratio": ("docx", of_document(b"<w>" + b" " * (16 << 20) + b"</w>"), "times when it is unpacked"),
    "entry over another": ("docx", patched(GOOD, 42, "<I", 0), "overlaps|damaged"),
    "two names of a part": ("docx", GOOD.replace(b"word/document.xml", b"word/somewhat.xml", 1), "called otherwise"),
    "bomb of entities": ("docx", of_document(_BOMB), "document type"),
    "entity from a file": ("docx", of_document(_ENTITY), "document type"),
    "not well-formed": ("docx", of_document("<w><p></w>"), "no well-formed XML"),
    "deep": ("docx", of_document("<a>" * 300 + "</a>" * 300), "nested more than 256 deep"),
    "fields in fields": (
        "docx",
        word("<w:p>" + '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 300 + "</w:p>"),
        "fields are nested more than 256 deep",
    ),
    "no UTF-8": ("docx", of_document(b"<w>\xff</w>"), "not valid UTF-8 at byte 3"),
    "UTF-16": ("docx", of_document('<?xml version="1.0" encoding="UTF-16"?><w/>'), "UTF-8 is accepted"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_file_is_refused_in_one_line_and_costs_no_memory(kind):
    name, content, message = HOSTILE[kind]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as error:
            draft_of(content, name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert "\n" not in str(error.value)
    assert peak < 1 << 20


def test_too_many_parts_are_refused(monkeypatch):
    monkeypatch.setattr(package, "MAX_PARTS", 3)

    with pytest.raises(ValueError, match="has 4 parts, at most 3"):
        draft_of(packed(dict.fromkeys("abcd", "x")), "docx")


def test_text_beyond_the_limit_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(package, "MAX_PART_BYTES", 500)
    parts = {f"word__p{number}": "<a>" + "b" * 300 + "</a>" for number in range(2)}

    with pytest.raises(ValueError, match=r"word/p1.xml has 307 bytes of text, at most 193"):
        draft_of(office(**parts), "docx")


def test_formulas_and_formats_that_are_made_to_be_slow_are_read_in_linear_time():
    quotes = "<worksheet><f>" + '"' * 200_001 + "</f></worksheet>"
    changes = "<w:p><w:r><w:rPr>" + "<w:rPrChange/>" * 20_000 + "</w:rPr><w:t>A cat.</w:t></w:r></w:p>"
    page = "<html" * 200_000

    assert draft_of(office(xl__worksheets__a=quotes), "xlsx").units == ()
    assert len(draft_of(word(changes), "docx").units) == 1
    draft_of(packed({"META-INF/container.xml": "<c/>", "a.xhtml": page}), "epub")


def test_macros_signatures_and_embedded_files_are_kept_and_said():
    content = packed(
        {**parts_of(GOOD), "word/vbaProject.bin": "x", "_xmlsignatures/a.xml": "<a/>", "word/embeddings/b.bin": "b"}
    )

    draft = draft_of(content, "docx")

    assert [remark.split(",")[0] for remark in draft.remarks] == [
        "the file has macros",
        "the file has a digital signature",
        "the file has other files embedded",
    ]
    assert list(parts_of(shouted(draft).content))[-3:] == [
        "word/vbaProject.bin",
        "_xmlsignatures/a.xml",
        "word/embeddings/b.bin",
    ]
