"""The requests that Discourse's plugin discourse-translator sends to LibreTranslate, and how it reads the answers."""

from collections.abc import Callable
from typing import Any

import httpx
from cases import FULL, GUARDED, KEY, MARKUP, NAMES, OPEN, TEXT, Has, expect, raised, run


class TranslatorError(Exception): ...


def result(url: str, key: str, **fields: str) -> Any:
    response = httpx.post(url, data={**fields, "api_key": key})
    body = response.json()
    if response.status_code != 200:
        raise TranslatorError(response.status_code, body)
    return body


def translate(url: str, text: str, target: str, key: str = "") -> str:
    """Detects the language of the stripped text, and translates the text as HTML."""
    found = result(f"{url}/detect", key, q=TEXT)
    source = found[0]["language"] if found else "en"
    answer = result(f"{url}/translate", key, q=text, source=source, target=target, format="html")
    return str(answer["translatedText"])


def text() -> None:
    expect(translate(OPEN, TEXT, "de"), TEXT)
    expect(translate(GUARDED, TEXT, "de", KEY), TEXT)
    assert {"en", "de"} <= {one["code"] for one in httpx.get(f"{OPEN}/languages").json()}


def several() -> None:
    raise Has("the client has none")


def refused(url: str, key: str, target: str, status: int) -> Callable[[], None]:
    def check() -> None:
        error = raised(TranslatorError, lambda: translate(url, TEXT, target, key))
        expect(error.args[0], status)
        assert error.args[1]["error"]

    return check


cases = (
    text,
    several,
    lambda: expect(translate(OPEN, MARKUP, "de"), MARKUP),
    refused(OPEN, "", "xx", 400),
    refused(GUARDED, "other", "de", 403),
    refused(FULL, "", "de", 429),
)
run(dict(zip(NAMES, cases, strict=True)))
