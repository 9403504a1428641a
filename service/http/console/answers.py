"""What the console's page is told, as JSON: records to dictionaries, places in code points as in the records."""

import base64
import json
import time
from collections.abc import Iterable
from typing import Any

from service.call import PHASES, Call
from service.errors import DragomanError, InvalidInput
from service.records import Link, ModelInfo, TextWarning, TranslatedSegment, Translation
from service.scores import AttentionHeads, PairScore


def line(value: dict[str, Any]) -> bytes:
    """Return a line of newline-delimited JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def describe_translation(translation: Translation) -> dict[str, Any]:
    """Return the outcome of a sentence."""
    if translation.error is not None:
        return {"error": describe_error(translation.error)}
    return {
        "text": translation.text,
        "pivot": translation.pivot_language,
        "warnings": describe_warnings(translation.pivot_warnings),
        "segments": [_describe_segment(segment) for segment in translation.segments],
    }


def _describe_segment(segment: TranslatedSegment) -> dict[str, Any]:
    return {
        "source": segment.source,
        "target": segment.target,
        "quality": None if segment.quality is None else round(segment.quality, 3),
        "warnings": describe_warnings(segment.warnings),
        "links": describe_links(segment.links),
    }


def describe_warnings(warnings: Iterable[TextWarning]) -> list[dict[str, str]]:
    """Return what went wrong."""
    return [{"kind": warning.kind.value, "message": warning.message} for warning in warnings]


def describe_links(links: Iterable[Link]) -> list[tuple[int, int, int, int]]:
    """Return, for each link, where its word of the source and its word of the translation begin and end."""
    return [(*link.source, *link.target) for link in links]


def describe_score(score: PairScore) -> dict[str, Any]:
    """Return what a model thinks of a pair, whose error has been raised."""
    return {
        "links": describe_links(score.links),
        "tokens": [{"text": token.text, "log_probability": round(token.log_probability, 3)} for token in score.tokens],
        "heads": None if score.heads is None else _describe_heads(score.heads),
    }


def _describe_heads(heads: AttentionHeads) -> dict[str, Any]:
    """Return the weights as base64 of bytes [layers, heads, queries, memory]; 255 stands for 1."""
    return {
        "source": heads.source,
        "target": heads.target,
        "num_heads": heads.weights.num_heads,
        "encoder": base64.b64encode(heads.weights.encoder).decode(),
        "cross": base64.b64encode(heads.weights.cross).decode(),
    }


def describe_model(info: ModelInfo) -> dict[str, Any]:
    """Return what a model is."""
    return {
        "name": info.name,
        "version": info.version,
        "source": info.source_language,
        "target": info.target_language,
        "precision": info.precision,
        "device": info.device,
        "beam_size": info.default_options.beam_size,
        "has_scorer": info.has_scorer,
        "has_head_weights": info.has_head_weights,
    }


def describe_end(model: str, version: str, call: Call) -> dict[str, Any]:
    """Return what ends a translation: who made it, and where the time went, in milliseconds."""
    timings = {phase: round(getattr(call, f"{phase}_s") * 1e3, 2) for phase in PHASES}
    total = round((time.monotonic() - call.started) * 1e3, 2)
    return {"model": model, "version": version, "timings": {**timings, "total": total}}


def describe_error(error: DragomanError) -> str:
    """Return the message of an error about the sentence."""
    return error.about("the text") if isinstance(error, InvalidInput) else str(error)
