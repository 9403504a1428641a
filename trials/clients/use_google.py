"""Google's Python client of Cloud Translation, version 3, with another server's address and without TLS."""

from collections.abc import Callable
from typing import Any

import grpc
from cases import FULL_GRPC, GUARDED_GRPC, KEY, MARKUP, NAMES, OPEN_GRPC, TEXT, expect, raised, run
from google.api_core.exceptions import GoogleAPICallError, NotFound, ResourceExhausted, Unauthenticated
from google.cloud import translate_v3
from google.cloud.translate_v3.services.translation_service.transports import TranslationServiceGrpcTransport

PARENT = "projects/any"


def client_of(address: str) -> translate_v3.TranslationServiceClient:
    transport = TranslationServiceGrpcTransport(channel=grpc.insecure_channel(address))
    return translate_v3.TranslationServiceClient(transport=transport)


def translated(address: str, *texts: str, key: str = "", **fields: Any) -> list[str]:
    request = {"parent": PARENT, "contents": texts, "target_language_code": "de", **fields}
    metadata = [("x-goog-api-key", key)] if key else []
    reply = client_of(address).translate_text(request=request, metadata=metadata)
    return [one.translated_text for one in reply.translations]


def text() -> None:
    expect(translated(OPEN_GRPC, TEXT, mime_type="text/plain"), [TEXT])
    expect(translated(GUARDED_GRPC, "ok", key=KEY, source_language_code="en"), ["ok"])
    client = client_of(OPEN_GRPC)
    found = client.detect_language(request={"parent": PARENT, "content": "Die Katze schläft im Garten."})
    expect([one.language_code for one in found.languages], ["de"])
    languages = client.get_supported_languages(parent=PARENT).languages
    expect([one.language_code for one in languages], ["de", "en"])


def refused(kind: type[GoogleAPICallError], address: str, **fields: Any) -> Callable[[], None]:
    return lambda: expect(type(raised(GoogleAPICallError, lambda: translated(address, "ok", **fields))), kind)


cases = (
    text,
    lambda: expect(translated(OPEN_GRPC, "one", "two", "ok"), ["one", "two", "ok"]),
    lambda: expect(translated(OPEN_GRPC, MARKUP), [MARKUP]),  # HTML, where no type is named
    refused(NotFound, OPEN_GRPC, target_language_code="xx"),
    refused(Unauthenticated, GUARDED_GRPC, key="other"),
    refused(ResourceExhausted, FULL_GRPC),
)
run(dict(zip(NAMES, cases, strict=True)))
