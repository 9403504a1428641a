"""A model in Marian's own formats (.npz, .bin) becomes what the export starts from.

Beside it lie vocabularies (.yml, .json or .spm), perhaps SentencePiece models, and perhaps a `decoder.yml` with the
options of marian-decoder, as in OPUS-MT's archives.  A student of Firefox or Bergamot has a lexical shortlist, and its
files may end in .gz.  Names and meanings as in marian-dev.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from export.importers.foreign import (
    ForeignModelError,
    ImportOptions,
    blaming,
    imported,
    read_pieces,
    read_settings,
    read_text,
    write_tokenizer,
)
from export.importers.language_tokens import with_languages
from export.importers.marian_bin import BinFile
from export.importers.marian_files import (
    Files,
    marian_files,
    model_path,
    options_path,
    shortlist_path,
    vocabulary_paths,
)
from export.importers.marian_shortlist import TextLimits, read_marian_shortlist
from export.importers.marian_weights import MarianWeights, Settings, number_of, text_of
from export.importers.npz_file import NpzFile
from export.source import ExportSource
from model.config import ModelConfig, StopRule
from model.manifest import AlignmentHeads, DecodingDefaults
from model.shortlist import SHORTLIST_NAME, Shortlist

SETTINGS_NAME = "special:model.yml"
_METADATA = ("metadata.json", "data.json")  # of Firefox's models
# How Firefox and Bergamot search with their students, apart from their limits of length.
_STUDENT: dict[str, Any] = {"beam-size": "1", "normalize": "1.0", "alignment": "soft"}


def read_marian_model(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with one `.npz` or `model*.bin` file or a `decoder.yml` that names one, and what lies beside it.
        options: what the owner says.
        scratch: an empty directory; gets the tokenizer's files, the shortlist, and what is unpacked.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    files = marian_files(directory, scratch)
    path = options_path(files)
    decoder = _settings(read_text(path), path) if path else {}
    path = path or directory
    weights = model_path(directory, files, _names(decoder, "models"))
    file: NpzFile | BinFile = NpzFile(weights) if weights.suffix == ".npz" else BinFile(weights)
    settings = _settings(file.text(SETTINGS_NAME), file.path)
    if not decoder and isinstance(file, BinFile) and text_of(settings, "dec-cell", file.path) == "ssru":
        decoder = _STUDENT
    names = options.vocabularies or vocabulary_paths(
        directory, files, [_names(one, "vocabs") for one in (decoder, settings)]
    )
    if len(names) > 2:
        raise ForeignModelError(f"{directory} has vocabularies of source and target, given are {len(names)}")
    source, target = (_tokens(names[side]) for side in (0, -1))
    writes_unknown = _flag(decoder, "allow-unk", path)
    config, state = MarianWeights(file, settings).convert(source, target, writes_unknown=writes_unknown)
    shortlist = _shortlist(directory, files, decoder, config, source, target)
    if shortlist:
        shortlist.save(scratch / SHORTLIST_NAME)
    if names[0].suffix == ".spm":
        options = replace(
            options,
            source_pieces=options.source_pieces or names[0],
            target_pieces=options.target_pieces or (names[-1] if names[-1] != names[0] else None),
        )
    tokenizer = write_tokenizer(scratch, [directory], options, source, target, source_eos=True)
    tokenizer, languages = with_languages(tokenizer, source, _languages(files), options)
    return imported(
        options,
        directory,
        scratch,
        languages,
        config=config,
        state=state,
        tokenizer=tokenizer,
        decoding=_decoding(decoder, path),
        shortlist_path=scratch / SHORTLIST_NAME if shortlist else None,
        alignment=_alignment(decoder, settings, config, file.path),
    )


def _languages(files: Files) -> tuple[str, str]:
    """Return the languages that Firefox's description of a model names, or nothing."""
    for path in (files[name] for name in _METADATA if name in files):
        described = read_settings(path)
        found = [described.get(f"{side}Language", "") for side in ("source", "target")]
        if all(isinstance(language, str) for language in found):
            return found[0], found[1]
    return "", ""


def _shortlist(
    directory: Path, files: Files, decoder: Settings, config: ModelConfig, source: list[str], target: list[str]
) -> Shortlist | None:
    """Return the lexical shortlist of a model that has one."""
    named, *numbers = _texts(decoder, "shortlist") or [""]
    path = shortlist_path(directory, files, Path(named).name.removesuffix(".gz"))
    if path is None:
        return None
    limits = TextLimits()
    if path.suffix != ".bin":  # which has its limits in it
        given = dict(zip(("first", "best", "threshold"), numbers, strict=False))
        limits = TextLimits(
            number_of(given, "first", limits.num_first, path),
            number_of(given, "best", limits.num_best, path),
            _float(given, "threshold", limits.threshold, path),
        )
    return read_marian_shortlist(path, source, target, limits, config)


def _settings(text: str, path: Path) -> dict[str, Any]:
    """Return a mapping in YAML, whose values stay texts: its tags and merges can run code or fill the memory."""
    try:
        found = yaml.load(text, yaml.CBaseLoader)  # noqa: S506 - knows texts, lists and mappings alone
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ForeignModelError(f"{path} has no settings in YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise ForeignModelError(f"{path} has no settings in YAML")
    return found


def _texts(settings: Settings, name: str) -> list[str]:
    """Return a setting that is a list of texts."""
    found = settings.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ForeignModelError(f"{name} is {found!r:.60}, it must be a list of texts")
    return found


def _names(settings: Settings, name: str) -> list[str]:
    """Return the names of files, without the directories that they had where the model was trained."""
    return [Path(one).name for one in _texts(settings, name)]


def _tokens(path: Path) -> list[str]:
    """Return the tokens of a vocabulary by id."""
    if path.suffix == ".spm":
        processor = read_pieces(path)
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
    usual = DecodingDefaults()
    with blaming(path):
        return DecodingDefaults(
            beam_size=number_of(decoder, "beam-size", usual.beam_size, path),
            length_penalty=_float(decoder, "normalize", usual.length_penalty, path),
            stop_rule=StopRule.MARIAN,
        )


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


def _alignment(decoder: Settings, settings: Settings, config: ModelConfig, path: Path) -> AlignmentHeads | None:
    """Return the head that was trained to align, the first of its layer."""
    if "alignment" not in decoder and text_of(settings, "guided-alignment", path, "none") == "none":
        return None
    layer = text_of(settings, "transformer-guided-alignment-layer", path, "last")
    number = config.num_decoder_layers if layer == "last" else number_of({"layer": layer}, "layer", 0, path)
    if not 1 <= number <= config.num_decoder_layers:
        raise ForeignModelError(f"{path}: transformer-guided-alignment-layer is {layer}, which the decoder lacks")
    return AlignmentHeads(heads=((number - 1, 0),))
