"""What each client has to do, and where the servers are; runs in the clients' own environment, on its Python alone."""

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Mapping

NAMES = ("text", "list", "html", "unknown language", "bad key", "overload")
MORE = ("documents", "glossaries")  # which few clients know
TEXT, MARKUP = "The cat sleeps, doesn't it?", '<p>The <b class="x">cat</b> sleeps.</p>'  # the servers say them again

_PARAGRAPH = f"<w:p><w:r><w:t>{TEXT}</w:t></w:r></w:p>"
_SPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

OPEN = os.environ.get("OPEN_URL", "")  # English to German and back, no key needed
GUARDED = os.environ.get("GUARDED_URL", "")  # the same with ...
KEY = os.environ.get("KEY", "")  # ... this key
FULL = os.environ.get("FULL_URL", "")  # has no room for another call
OPEN_GRPC, GUARDED_GRPC, FULL_GRPC = (os.environ.get(f"{name}_GRPC", "") for name in ("OPEN", "GUARDED", "FULL"))

Case = Callable[[], object]  # raises if it is not as it should be


class Has(AssertionError):
    """Raised where a client has no such function, with what it has instead."""


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"found {found!r}, wanted {wanted!r}")


def letter() -> bytes:
    """A docx with the text."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        body = f'<w:document xmlns:w="{_SPACE}"><w:body>{_PARAGRAPH}</w:body></w:document>'
        archive.writestr("word/document.xml", body)
    return written.getvalue()


def expect_letter(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert _PARAGRAPH in archive.read("word/document.xml").decode()


def raised(kind: type[BaseException], action: Case) -> BaseException:
    """The error of this kind that the action ends with."""
    try:
        found = action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} but {found!r}")


def run(cases: Mapping[str, Case]) -> None:
    """Run a client's cases, write the outcomes as JSON, and exit with 1 if one is not as it should be."""
    outcomes: dict[str, str] = {}
    for name, case in cases.items():
        try:
            case()
            outcomes[name] = "ok"
        except Has as reason:
            outcomes[name] = str(reason)
        except Exception as error:  # noqa: BLE001 - whatever a client raises
            outcomes[name] = f"FAILED: {type(error).__name__}: {error}"
    print(json.dumps(outcomes))
    sys.exit(any(outcome.startswith("FAILED") for outcome in outcomes.values()))
