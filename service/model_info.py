"""What a bundle says of its model before anything runs: its description, its tokenizer, its search defaults.

Knows bundles and records; no engine and no server, so that a server and a translation in this process say the same.
"""

from dataclasses import asdict

from model.bundle import PREFERRED_PRECISIONS, Bundle
from model.tokenizer import Tokenizer
from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.translation import ModelInfo, TranslateOptions


def describe(bundle: Bundle, precision: str | None = None) -> ModelInfo:
    """The model of a bundle, with complete default options.

    Args:
        precision: that of the graphs; None for the best the bundle has.
    """
    manifest, decoding = bundle.manifest, bundle.manifest.decoding
    best = next((name for name in PREFERRED_PRECISIONS if name in manifest.variants), "")
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        source_language=manifest.source_language,
        target_language=manifest.target_language,
        precision=precision or best,
        device="cpu",
        default_options=TranslateOptions(
            beam_size=decoding.beam_size,
            num_hypotheses=1,
            length_penalty=decoding.length_penalty,
            patience=decoding.patience,
            max_target_tokens=decoding.max_target_tokens,
        ),
        max_source_tokens=decoding.max_source_tokens,
        max_beam_size=LimitsConfig().max_beam_size,
    )


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer.

    Raises:
        ValueError: it is no tokenizer, or not this model's.
    """
    tokenizer = Tokenizer.load(bundle.tokenizer_path)
    rows = bundle.manifest.config.vocab_size
    if tokenizer.vocab_size != rows:
        pieces = f"{bundle.tokenizer_path} has {tokenizer.vocab_size} pieces"
        raise ValueError(f"{pieces}, the model's embedding has {rows} rows; restore the file or export again")
    return tokenizer


def search_params(info: ModelInfo, options: TranslateOptions) -> SearchParams:
    """The options, with the model's defaults where they are absent; ranges are not checked."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    return SearchParams(**asdict(info.default_options) | given)
