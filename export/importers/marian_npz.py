"""A model in Marian's own format (.npz) becomes what the export starts from.

Beside it lie vocabularies (.yml, .json or .spm), perhaps SentencePiece models, and perhaps a `decoder.yml` with the
options of marian-decoder, as in OPUS-MT's archives.  Names and meanings as in marian-dev.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from export.importers.foreign import (
    ForeignModelError,
    ImportOptions,
    read_text,
    require_one_language,
    write_tokenizer,
)
from export.importers.marian_weights import MarianWeights, Settings, number_of, text_of
from export.importers.npz_file import NpzFile
from export.source import FIRST_VERSION, ExportSource
from model.config import ModelConfig, StopRule
from model.manifest import AlignmentHeads, DecodingDefaults
from model.pieces import load_processor

OPTIONS_NAME = "decoder.yml"
SETTINGS_NAME = "special:model.yml"


def is_marian_npz(directory: Path) -> bool:
    """Return whether the directory has a file of Marian's format."""
    return any(directory.glob("*.npz"))


def read_marian_npz(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with one `.npz` file or a `decoder.yml` that names one, and what lies beside it.
        options: what the owner says.
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    path = directory / OPTIONS_NAME
    decoder = _settings(read_text(path), path) if path.is_file() else {}
    file = NpzFile(_model_path(directory, decoder))
    settings = _settings(file.text(SETTINGS_NAME), file.path)
    languages = options.languages("", "")
    names = _vocabulary_paths(directory, options, [decoder, settings])
    source, target = (_tokens(names[side]) for side in (0, -1))
    require_one_language(source, options)
    writes_unknown = _flag(decoder, "allow-unk", path)
    config, state = MarianWeights(file, settings).convert(source, target, writes_unknown=writes_unknown)
    if names[0].suffix == ".spm":
        options = replace(
            options,
            source_pieces=options.source_pieces or names[0],
            target_pieces=options.target_pieces or (names[-1] if names[-1] != names[0] else None),
        )
    return ExportSource(
        config=config,
        state=state,
        tokenizer_path=scratch,
        tokenizer=write_tokenizer(scratch, [directory], options, source, target, source_eos=True),
        decoding=_decoding(decoder, path),
        name=options.name or directory.resolve().name,
        version=options.version or FIRST_VERSION,
        source_language=languages[0],
        target_language=languages[1],
        alignment=_alignment(settings, config, file.path),
    )


def _settings(text: str, path: Path) -> dict[str, Any]:
    """Return a mapping in YAML, whose values stay texts: its tags and merges can run code or fill the memory."""
    try:
        found = yaml.load(text, yaml.CBaseLoader)  # noqa: S506 - knows texts, lists and mappings alone
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ForeignModelError(f"{path} has no settings in YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise ForeignModelError(f"{path} has no settings in YAML")
    return found


def _model_path(directory: Path, decoder: Settings) -> Path:
    """Return the file that decoder.yml names, wherever it lay before, or the only one."""
    found = sorted(directory.glob("*.npz"))
    if names := _names(decoder, "models"):
        found = [directory / name for name in names]
    if len(found) != 1 or not found[0].is_file():
        raise ForeignModelError(
            f"{directory} has {len(found)} .npz models ({', '.join(path.name for path in found[:3])}): one is needed, "
            f"there or named by {OPTIONS_NAME}"
        )
    return found[0]


def _names(settings: Settings, name: str) -> list[str]:
    """Return the names of files, without the directories that they had where the model was trained."""
    found = settings.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ForeignModelError(f"{name} is {found!r:.60}, it must be a list of files")
    return [Path(one).name for one in found]


def _vocabulary_paths(directory: Path, options: ImportOptions, settings: list[Settings]) -> tuple[Path, ...]:
    """Return one file, or those of source and target."""
    named = [tuple(directory / name for name in _names(one, "vocabs")) for one in settings]
    for found in (options.vocabularies, *named):
        if 1 <= len(found) <= 2 and all(path.is_file() for path in found):
            return found
    raise ForeignModelError(f"{directory} does not have the vocabularies that the model names: give --vocabulary FILE")


def _tokens(path: Path) -> list[str]:
    """Return the tokens of a vocabulary by id."""
    if path.suffix == ".spm":
        try:
            processor = load_processor(path)
        except ValueError as error:
            raise ForeignModelError(str(error)) from error
        return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    found = _settings(read_text(path), path)
    by_id = {number_of(found, token, 0, path): token for token in found}
    if sorted(by_id) != list(range(len(found))):
        raise ForeignModelError(f"{path}: the ids of {len(found)} tokens are not 0 to {len(found) - 1}")
    return [by_id[number] for number in range(len(found))]


def _decoding(decoder: Settings, path: Path) -> DecodingDefaults:
    """Return how marian-decoder searches with these options; what they do not say is as everywhere in this project."""
    if _float(decoder, "word-penalty", 0.0, path) != 0.0:
        raise ForeignModelError(f"{path}: word-penalty is {decoder['word-penalty']}, only 0 is supported")
    if decoder.get("shortlist"):
        raise ForeignModelError(f"{path}: shortlist is not supported: without that line, all tokens are scored")
    usual = DecodingDefaults()
    try:
        return DecodingDefaults(
            beam_size=number_of(decoder, "beam-size", usual.beam_size, path),
            length_penalty=_float(decoder, "normalize", usual.length_penalty, path),
            stop_rule=StopRule.MARIAN,
        )
    except ForeignModelError:
        raise
    except ValueError as error:
        raise ForeignModelError(f"{path}: {error}") from error


def _float(settings: Settings, name: str, default: float, path: Path) -> float:
    """Return a setting that is a number."""
    value = text_of(settings, name, path, str(default))
    try:
        return float(value)
    except ValueError as error:
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be a number") from error


def _flag(settings: Settings, name: str, path: Path) -> bool:
    value = text_of(settings, name, path, "false")
    if value not in ("true", "false"):
        raise ForeignModelError(f"{path}: {name} is {value!r:.60}, it must be true or false")
    return value == "true"


def _alignment(settings: Settings, config: ModelConfig, path: Path) -> AlignmentHeads | None:
    """Return the head that was trained to align, the first of its layer."""
    if text_of(settings, "guided-alignment", path, "none") == "none":
        return None
    layer = text_of(settings, "transformer-guided-alignment-layer", path, "last")
    number = config.num_decoder_layers if layer == "last" else number_of({"layer": layer}, "layer", 0, path)
    if not 1 <= number <= config.num_decoder_layers:
        raise ForeignModelError(f"{path}: transformer-guided-alignment-layer is {layer}, which the decoder lacks")
    return AlignmentHeads(heads=((number - 1, 0),))
