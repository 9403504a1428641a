"""What went wrong with a text, in a few words, however long the text is."""

import time

from service.api.http.fields import warn_of
from service.call import Call
from service.records import Span, TextWarning, TranslatedSegment, TranslatedText, Translation, WarningKind


def translation(*kinds: WarningKind) -> Translation:
    hypotheses = (TranslatedText(text="x", score=0.0, finish_reason=None, target_tokens=1),)  # type: ignore[arg-type]
    return Translation(
        hypotheses=hypotheses,
        segments=tuple(
            TranslatedSegment(
                source=Span(place, place + 1),
                target=Span(place, place + 1),
                hypotheses=hypotheses,
                warnings=(TextWarning(kind, f"{kind} at {place}", Span(place, place + 1)),),
            )
            for place, kind in enumerate(kinds)
        ),
    )


def test_header_is_short_however_many_warnings_there_are():
    call = Call(method="m", started=time.monotonic(), deadline=time.monotonic() + 60.0)
    assert call.warnings == ""

    warn_of([translation(*WarningKind) for _ in range(1_000)], call)

    assert len(call.warnings) < 500
    assert call.warnings.startswith("copied=1000, empty=1000, ")
    assert call.warnings.count("=") == len(WarningKind)
