"""What a model says of itself, where a test minds only some of it."""

from service.records import ModelInfo, TranslateOptions

OPTIONS = TranslateOptions(
    beam_size=4, num_hypotheses=1, length_penalty=1.0, patience=1.0, max_target_tokens=64, use_shortlist=False
)


def model_info(
    name: str = "m",
    version: str = "1",
    *,
    source_language: str = "en",
    target_language: str = "de",
    precision: str = "int8",
    default_options: TranslateOptions = OPTIONS,
    max_source_tokens: int = 64,
) -> ModelInfo:
    """A small model on the CPU, from English to German unless told otherwise, whose default options are complete."""
    return ModelInfo(
        name=name,
        version=version,
        source_language=source_language,
        target_language=target_language,
        precision=precision,
        device="cpu",
        default_options=default_options,
        max_source_tokens=max_source_tokens,
        max_beam_size=16,
        runtime="native",
        runtime_detail="avx2",
    )
