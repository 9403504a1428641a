"""libretranslate-aio, a client of LibreTranslate that sends and fetches files."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
from cases import FULL, GUARDED, KEY, MARKUP, NAMES, OPEN, TEXT, expect, expect_letter, letter, raised, run
from libretranslate_aio import BadRequestError, ForbiddenError, LibreTranslate, LibreTranslateError, RateLimitError

client = LibreTranslate(OPEN)


def text() -> None:
    expect(client.translate(TEXT, "en", "de").translated_text, TEXT)
    expect(LibreTranslate(GUARDED, api_key=KEY).translate(TEXT, "en", "de").translated_text, TEXT)
    expect(client.detect("Die Katze schläft im Garten.")[0].language, "de")


def several() -> None:
    expect(client.translate([TEXT, "ok"], "en", "de").translated_text, [TEXT, "ok"])


def html() -> None:
    expect(client.translate(MARKUP, "en", "de", format="html").translated_text, MARKUP)


def refused(kind: type[LibreTranslateError], url: str, key: str | None, source: str) -> Callable[[], object]:
    return lambda: raised(kind, lambda: LibreTranslate(url, api_key=key).translate(TEXT, source, "de"))


def documents() -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "letter.docx")
        file.write_bytes(letter())
        url = client.translate_file(file, "en", "de").translated_file_url
        expect_letter(httpx.get(url).content)
        file.write_bytes(b"no package")
        error = raised(BadRequestError, lambda: client.translate_file(file, "en", "de"))
        assert "no ZIP package" in str(error)


cases = (
    text,
    several,
    html,
    refused(BadRequestError, OPEN, None, "xx"),
    refused(ForbiddenError, GUARDED, "other", "en"),
    refused(RateLimitError, FULL, None, "en"),
)
run({**dict(zip(NAMES, cases, strict=True)), "documents": documents})
