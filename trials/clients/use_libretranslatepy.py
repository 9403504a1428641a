"""LibreTranslate's Python client, and the same class as Argos Translate has it (named as the first argument)."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.error import HTTPError

from cases import FULL, GUARDED, KEY, NAMES, OPEN, TEXT, Has, expect, raised, run

Api: Callable[..., Any] = import_module(sys.argv[1]).LibreTranslateAPI


def translate() -> None:
    client = Api(OPEN)
    expect(client.translate(TEXT, source="en", target="de"), TEXT)
    expect(client.detect("Die Katze schläft im Garten.")[0]["language"], "de")
    expect({one["code"]: one["targets"] for one in client.languages()}, {"en": ["de"], "de": ["en"]})
    expect(Api(GUARDED, KEY).translate(TEXT, source="en", target="de"), TEXT)
    expect(len(Api(GUARDED, KEY).languages()), 2)


def has_none() -> None:
    raise Has("the client has none")


def refused(url: str, key: str | None, source: str, status: int) -> Callable[[], None]:
    def check() -> None:
        error = raised(HTTPError, lambda: Api(url, key).translate(TEXT, source=source, target="de"))
        assert isinstance(error, HTTPError)
        expect(error.code, status)
        assert b'{"error":' in error.read()
        if status == 429:
            assert int(error.headers["Retry-After"]) >= 1

    return check


cases = (
    translate,
    has_none,
    has_none,
    refused(OPEN, None, "xx", 400),
    refused(GUARDED, "other", "en", 403),
    refused(FULL, None, "en", 429),
)
run(dict(zip(NAMES, cases, strict=True)))
