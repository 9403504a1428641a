"""Which language a text is taken to be in where its caller does not say, and whether it needs a translation at all.

Pure but for the detector's model; knows languages by their tags, and neither models nor requests.
"""

from collections.abc import Sequence
from typing import NamedTuple

from service.records import DetectedLanguage
from service.text.detector import NO_LANGUAGE, Detector, Reading

# From here on a text counts as written in the target language; however short it is, few are taken for that wrongly
# (bench/quality/detection.py has the shares).
CERTAIN = 0.95


class Judged(NamedTuple):
    """What a text is taken to be written in."""

    found: DetectedLanguage  # as its caller is told; no language where nothing was measured
    source: str = ""  # the source language that it is translated from; empty: that of the other texts
    stays: bool = False  # whether it comes back as it is: it is in the target language, or in none of those on offer


def judge(text: str, sources: Sequence[str], target: str, detector: Detector) -> Judged:
    """Return what a text is taken to be written in.

    A text stays only if none of its parts is certainly in a source language.

    Args:
        sources: that there are models for.
        target: that they translate into; empty: each its own, so that no text is in it.
        detector: may load its model.
    """
    languages = [*sources, target] if target else sources
    reading = detector.read(text, languages)
    found = reading.found
    if reading.other is not None or (found.language == target and found.language and _is_certain(reading)):
        parts = detector.read_parts(text, languages)
        in_source = next((part.found for part in parts if part.found.language != target and _is_certain(part)), None)
        if in_source is None:
            return Judged(found if reading.other is None else reading.other, stays=True)
        return Judged(in_source, in_source.language)
    for language, confidence in reading.confidences.items():
        if language != target:
            return Judged(DetectedLanguage(language, confidence), language)
    return Judged(NO_LANGUAGE)


def _is_certain(reading: Reading) -> bool:
    return reading.other is None and reading.is_likeliest and reading.found.confidence >= CERTAIN
