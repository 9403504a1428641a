"""The description of a bundle's model, and which of several described models a request means.

Knows bundles and records, but no engine and no server, so that both a server and `service.local` say the same.
"""

from collections.abc import Sequence

from model.bundle import Bundle
from model.manifest import GPU_PRECISION, PREFERRED_PRECISIONS
from service.config import LimitsConfig
from service.engine.spec import Device
from service.errors import NotFound
from service.records import ModelInfo, TranslateOptions

DEFAULT_MAX_BEAM_SIZE = LimitsConfig().max_beam_size  # where no setting changes it
_MAX_ECHO = 40  # characters of a caller's value in a message


def describe(
    bundle: Bundle,
    precision: str | None = None,
    device: Device = "cpu",
    *,
    max_beam_size: int = DEFAULT_MAX_BEAM_SIZE,
) -> ModelInfo:
    """Describe the model of a bundle, with complete default options.

    Args:
        precision: of the graphs; None for the best that the bundle has.
        device: where the graphs run.
        max_beam_size: the largest beam that is accepted, which also limits the default.
    """
    manifest, decoding = bundle.manifest, bundle.manifest.decoding
    preferred = PREFERRED_PRECISIONS if device == "cpu" else (GPU_PRECISION,)
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        source_language=manifest.source_language,
        target_language=manifest.target_language,
        precision=precision or next((name for name in preferred if name in manifest.variants), ""),
        device=device,
        default_options=TranslateOptions(
            beam_size=min(decoding.beam_size, max_beam_size),
            num_hypotheses=1,
            length_penalty=decoding.length_penalty,
            patience=decoding.patience,
            max_target_tokens=decoding.max_target_tokens,
            use_shortlist=False,
            allow_smaller_beam=False,
        ),
        max_source_tokens=decoding.max_source_tokens,
        max_beam_size=max_beam_size,
        has_shortlist=bool(manifest.shortlist) and device == "cpu",
    )


def index_of(infos: Sequence[ModelInfo], *, model: str | None, source_language: str, target_language: str) -> int:
    """Return the index of the first model that fits; an empty language, and no model, fit all.

    Raises:
        NotFound: no model fits; the message lists what there is.
    """
    named = [index for index, info in enumerate(infos) if model is None or info.name == model]
    if not named:
        names = ", ".join(info.name for info in infos)
        asked = "" if model is None else f" {_echo(model)}"
        raise NotFound(f"there is no model{asked}; loaded: {names or 'none'}")
    for index in named:
        info = infos[index]
        pairs = ((source_language, info.source_language), (target_language, info.target_language))
        if all(asked == "" or asked.lower() == offered.lower() for asked, offered in pairs):
            return index
    offers = ", ".join(f"{infos[index].source_language}-{infos[index].target_language}" for index in named)
    languages = " to ".join(_echo(code) if code else "any language" for code in (source_language, target_language))
    raise NotFound(f"there is no model for {languages}; language pairs: {offers}")


def _echo(value: str) -> str:
    """Return a caller's value, short and harmless in a message."""
    return ascii(value if len(value) <= _MAX_ECHO else value[:_MAX_ECHO] + "...")
