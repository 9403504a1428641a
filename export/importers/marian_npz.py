"""A model in Marian's own formats (.npz, .bin) becomes what the export starts from.

Beside it lie vocabularies (.yml, .json or .spm), perhaps SentencePiece models, and perhaps a `decoder.yml` with the
options of marian-decoder, which name the files, as in the archives of OPUS-MT and Bergamot.  A student of Firefox or
Bergamot has a lexical shortlist.  Firefox serves `model.ende.intgemm.alphas.bin.gz`, `lex.50.50.ende.s2t.bin.gz` and
`vocab.ende.spm.gz`, or `srcvocab` and `trgvocab`: packed files are unpacked.  Names and meanings as in marian-dev.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
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
from export.importers.marian_arrays import ArrayFile, BinFile, NpzFile, is_marian_bin
from export.importers.marian_shortlist import TextLimits, read_marian_shortlist
from export.importers.marian_weights import MarianWeights, Settings, number_of, text_of
from export.source import ExportSource
from model.config import ModelConfig, StopRule
from model.manifest import AlignmentHeads, DecodingDefaults
from model.shortlist import SHORTLIST_NAME, Shortlist

SETTINGS_NAME = "special:model.yml"
_METADATA = ("metadata.json", "data.json")  # of Firefox's models
# How Firefox and Bergamot search with their students, apart from their limits of length.
_STUDENT: dict[str, Any] = {"beam-size": "1", "normalize": "1.0", "alignment": "soft"}
_MODELS = ("*.npz", "model*.bin")
_VOCABULARIES = (("vocab*.spm",), ("srcvocab*.spm", "trgvocab*.spm"))  # one, or source and target
_SHORTLISTS = (("lex*.bin",), ("lex*.s2t",))  # the first is what Marian made of the second
_PACKED = tuple(f"{pattern}.gz" for patterns in (_MODELS, *_VOCABULARIES, *_SHORTLISTS) for pattern in patterns)
_OPTIONS = ("decoder.yml", "config.*.yml")  # of marian-decoder: OPUS-MT, Bergamot
_BLOCK = 1 << 20  # bytes at a time
_MOST_TIMES = 50  # a packed file becomes this many times its size; a text shortlist becomes 5 times

Files = Mapping[str, Path]  # by name


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
    file: ArrayFile[Any] = NpzFile(weights) if weights.suffix == ".npz" else BinFile(weights)
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


def is_marian_model(directory: Path) -> bool:
    """Return whether the directory has a file of Marian's formats."""
    plain = [*directory.glob("*.npz"), *filter(is_marian_bin, directory.glob("model*.bin"))]
    return bool(plain) or any(path for pattern in _MODELS for path in directory.glob(f"{pattern}.gz"))


def marian_files(directory: Path, scratch: Path) -> Files:
    """Return the files by name.

    Args:
        directory: of the model.
        scratch: gets a directory with what was unpacked.

    Raises:
        ForeignModelError: a packed file is damaged, or becomes too large.
    """
    files = {path.name: path for path in sorted(directory.iterdir()) if path.is_file()}
    for name, path in list(files.items()):
        plain = name.removesuffix(".gz")
        if plain not in files and any(fnmatch(name, pattern) for pattern in _PACKED):
            files[plain] = scratch / "unpacked" / plain
            files[plain].parent.mkdir(exist_ok=True)
            _unpack(path, files[plain])
    return files


def options_path(files: Files) -> Path | None:
    """Return the file with options of marian-decoder, or None."""
    for pattern in _OPTIONS:
        found = _matching(files, pattern)
        if len(found) > 1:
            raise ForeignModelError(f"{found[0].parent} has {len(found)} files of options ({pattern}): leave one there")
        if found:
            return found[0]
    return None


def model_path(directory: Path, files: Files, named: Sequence[str]) -> Path:
    """Return the file that the options name, wherever it lay before, or the only one."""
    names = list(named) or [path.name for pattern in _MODELS for path in _matching(files, pattern)]
    if len(names) != 1 or names[0] not in files:
        raise ForeignModelError(
            f"{directory} has {len(names)} models ({', '.join(names[:3])}): one is needed, there or named by "
            f"{_OPTIONS[0]}"
        )
    return files[names[0]]


def vocabulary_paths(directory: Path, files: Files, named: Sequence[Sequence[str]]) -> list[Path]:
    """Return one file, or those of source and target: the first of these lists that is there, or what lies there."""
    for names in named:
        found = [files[name] for name in names if name in files]
        if 1 <= len(found) == len(names) <= 2:
            return found
    for patterns in _VOCABULARIES:
        matching = [_matching(files, pattern) for pattern in patterns]
        if all(len(paths) == 1 for paths in matching):
            return [paths[0] for paths in matching]
    raise ForeignModelError(f"{directory} does not have the vocabularies that the model names: give --vocabulary FILE")


def shortlist_path(directory: Path, files: Files, named: str) -> Path | None:
    """Return the shortlist that the options name, or the only one, or None."""
    if named:
        if named not in files:
            raise ForeignModelError(f"{directory} does not have the shortlist {named!r:.60} that the options name")
        return files[named]
    for patterns in _SHORTLISTS:
        found = [path for pattern in patterns for path in _matching(files, pattern)]
        if len(found) > 1:
            raise ForeignModelError(f"{directory} has {len(found)} shortlists ({found[0].name}, ...): leave one there")
        if found:
            return found[0]
    return None


def _matching(files: Files, pattern: str) -> list[Path]:
    return [path for name, path in files.items() if fnmatch(name, pattern)]


def _unpack(path: Path, destination: Path) -> None:
    """Write what a packed file holds, block by block."""
    most, written = _MOST_TIMES * path.stat().st_size, 0
    try:
        with gzip.open(path) as packed, destination.open("wb") as file:
            while block := packed.read(_BLOCK):
                written += file.write(block)
                if written > most:
                    raise ForeignModelError(
                        f"{path} becomes more than {_MOST_TIMES} times its size: unpack it yourself"
                    )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ForeignModelError(f"{path} is no .gz file, or a damaged one: {error}") from error
