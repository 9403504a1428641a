"""The requests that Mastodon sends to LibreTranslate and to DeepL, and how it reads the answers."""

import json
from typing import Any
from urllib.parse import urlencode

import httpx
from cases import FULL, GUARDED, KEY, MARKUP, NAMES, OPEN, TEXT, expect, raised, run

JSON = {"Content-Type": "application/json"}


class TooManyRequests(Exception): ...


class QuotaExceeded(Exception): ...


class UnexpectedResponse(Exception): ...


def read(response: httpx.Response) -> Any:
    match response.status_code:
        case 429:
            raise TooManyRequests
        case 403 | 456:
            raise QuotaExceeded
        case status if 200 <= status < 300:
            return response.json()
    raise UnexpectedResponse(response.text)


def libre(url: str, texts: list[str], source: str | None, target: str, key: str | None = None) -> list[tuple[str, Any]]:
    """Texts and their languages."""
    body = {"q": texts, "source": source or "auto", "target": target, "format": "html", "api_key": key}
    data = read(httpx.post(f"{url}/translate", content=json.dumps(body), headers=JSON))
    detected = data.get("detectedLanguage") or []
    return [
        (text, detected[index]["language"] if index < len(detected) else source)
        for index, text in enumerate(data["translatedText"])
    ]


def languages(url: str) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {
        one["code"]: [target for target in one["targets"] if target != one["code"]]
        for one in read(httpx.get(f"{url}/languages", headers=JSON))
    }
    found[None] = sorted({target for targets in found.values() for target in targets})
    return found


def deepl(url: str, texts: list[str], target: str, key: str = KEY) -> list[tuple[str, str]]:
    fields = urlencode([("text", text) for text in texts])
    body = f"{fields}&source_lang&target_lang={target}&tag_handling=html"  # Ruby writes nil without "="
    headers = {"Authorization": f"DeepL-Auth-Key {key}", "Content-Type": "application/x-www-form-urlencoded"}
    data = read(httpx.post(f"{url}/v2/translate", content=body, headers=headers))
    return [(one["text"], one["detected_source_language"].lower()) for one in data["translations"]]


def text() -> None:
    expect(libre(OPEN, [TEXT], "en", "de"), [(TEXT, "en")])
    expect(languages(GUARDED), {"en": ["de"], "de": ["en"], None: ["de", "en"]})  # asked for without a key
    expect(libre(GUARDED, [TEXT], "en", "de", KEY), [(TEXT, "en")])


def several() -> None:
    expect(libre(OPEN, [TEXT, "ok"], None, "de"), [(TEXT, "en"), ("ok", "en")])
    expect(deepl(OPEN, [TEXT, "a & b"], "DE"), [(TEXT, "en"), ("a &amp; b", "en")])


def html() -> None:
    expect(libre(OPEN, [MARKUP], "en", "de"), [(MARKUP, "en")])
    expect(deepl(OPEN, [MARKUP], "DE"), [(MARKUP, "en")])


def unknown_language() -> None:
    raised(UnexpectedResponse, lambda: libre(OPEN, [TEXT], "xx", "de"))
    raised(UnexpectedResponse, lambda: deepl(OPEN, [TEXT], "XX"))


def bad_key() -> None:
    raised(QuotaExceeded, lambda: libre(GUARDED, [TEXT], "en", "de", "other"))
    raised(QuotaExceeded, lambda: deepl(GUARDED, [TEXT], "DE", "other"))


def overload() -> None:
    raised(TooManyRequests, lambda: libre(FULL, [TEXT], "en", "de"))
    raised(TooManyRequests, lambda: deepl(FULL, [TEXT], "DE"))


run(dict(zip(NAMES, (text, several, html, unknown_language, bad_key, overload), strict=True)))
