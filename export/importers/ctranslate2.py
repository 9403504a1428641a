"""A CTranslate2 model, perhaps in an Argos Translate package, becomes what the export starts from.

Names and defaults as in CTranslate2's src/models/transformer.cc and src/layers/transformer.cc.  A variable that nobody
asked for is refused: it would change the translations.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from export.importers.argos import ArgosPackage
from export.importers.checkpoint import flag, text_of
from export.importers.ctranslate2_weights import HEADS, Ctranslate2Weights
from export.importers.foreign import (
    ForeignModelError,
    ImportOptions,
    imported,
    index_of,
    read_json,
    read_lines,
    read_settings,
    require_understood,
    write_tokenizer,
)
from export.importers.language_tokens import codes_in, with_languages
from export.importers.marian_arrays import is_marian_bin
from export.importers.model_bin import ModelFile
from export.source import FIRST_VERSION, ExportSource
from model.config import ModelConfig
from model.manifest import AlignmentHeads, DecodingDefaults

MODEL_NAME = "model.bin"
_NEWEST_REVISION = 7
# Variables without meaning here: how features are merged, of which there is one, and details of what is off.
_IGNORED = re.compile(r"(?:(?:en|de)coder/)?(?:embeddings_merge|scale_alibi|alibi_use_positive_positions)")
_REFUSED = {
    "relative_position_keys": "relative positions (Shaw et al. 2018)",
    "relative_attention_bias": "a relative attention bias (T5)",
    "linear_0_noact": "gated linear units",
    "rotary_dim": "rotary positions",
    "q_norm": "norms of queries and keys",
    "embeddings_1": "several features for each source token",
    "project_in": "a projection of the embeddings",
}


def is_ctranslate2(directory: Path) -> bool:
    """Return whether the directory has a CTranslate2 model, or an unpacked Argos package with one."""
    path = _model_directory(directory) / MODEL_NAME
    return path.is_file() and not is_marian_bin(path)


def read_ctranslate2(directory: Path, options: ImportOptions, scratch: Path) -> ExportSource:
    """Read a model.

    Args:
        directory: with `model.bin`, vocabularies, and for a newer model `config.json`; or a package of Argos.  There
            may be SentencePiece models, and the `tokenizer_config.json` of the checkpoint that was converted.
        options: what the owner says.
        scratch: an empty directory; gets the tokenizer's files.

    Raises:
        ForeignModelError: the model is damaged, or has parts that are not supported.
    """
    place = _model_directory(directory)
    file = ModelFile(place / MODEL_NAME)
    _require_translation_model(file)
    if file.revision == 1:
        file.rename({name: _newer_name(name) for name in file})
    package = ArgosPackage.read(directory)
    settings = _Settings.read(file, place)
    source, target = _vocabularies(place, settings.unknown)
    config, state = Ctranslate2Weights(file, settings.norm_epsilon).convert(
        source, target, settings.start, settings.end
    )
    if package is None and (config.suppressed_ids or codes_in(source)):  # callers of Marian and NLLB end each source
        settings = replace(settings, source_eos=True)
    tokenizer = write_tokenizer(
        scratch,
        list(dict.fromkeys((place, directory))),
        options,
        source,
        target,
        unknown=settings.unknown,
        end=settings.end,
        source_bos=settings.begin if settings.source_bos else "",
        source_eos=settings.source_eos,
    )
    alignment = _alignment(file, config)
    require_understood([name for name in file.unread if not _IGNORED.fullmatch(name)], "variables", file.path)
    if package is None:
        named, is_last = _named_languages(directory)
        tokenizer, languages = with_languages(tokenizer, source, named, options, is_last=is_last)
        name, version, decoding = directory.resolve().name, FIRST_VERSION, DecodingDefaults()
    else:
        for token in package.target_prefix:
            index_of(target, token, directory)
        tokenizer, languages = (
            replace(tokenizer, target_prefix=package.target_prefix),
            options.languages(*package.languages),
        )
        name, version = package.name, package.version
        decoding = DecodingDefaults(length_penalty=package.length_penalty)
    return imported(
        options,
        directory,
        scratch,
        languages,
        config=config,
        state=state,
        tokenizer=tokenizer,
        decoding=decoding,
        name=name,
        version=version,
        alignment=alignment,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What `config.json` says, or in files before version 6 the variables of the same meaning."""

    unknown: str
    begin: str
    end: str
    start: str  # the first decoder input
    source_bos: bool
    source_eos: bool
    norm_epsilon: float

    @classmethod
    def read(cls, file: ModelFile, directory: Path) -> "_Settings":
        path = directory / "config.json"
        found = read_settings(path) if path.is_file() else {}
        if file.version < 6:
            found = {**found, **_old_settings(file)}
        if found.get("quantization_type") is not None:
            raise ForeignModelError(
                f"{path}: quantization_type is {found['quantization_type']!r}, which is not supported"
            )
        texts = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        names = {name: found.get(name, usual) for name, usual in texts.items()}
        start = found.get("decoder_start_token", names["bos_token"])
        if start is None:
            raise ForeignModelError(
                f"{path}: the model has no decoder_start_token: its callers give one with each text"
            )
        for name, text in (*names.items(), ("decoder_start_token", start)):
            if not isinstance(text, str):
                raise ForeignModelError(f"{path}: {name} is {text!r}, it must be text")
        epsilon = found.get("layer_norm_epsilon")
        if epsilon is not None and type(epsilon) not in (int, float):
            raise ForeignModelError(f"{path}: layer_norm_epsilon is {epsilon!r:.60}, it must be a number")
        return cls(
            unknown=names["unk_token"],
            begin=names["bos_token"],
            end=names["eos_token"],
            start=start,
            source_bos=bool(found.get("add_source_bos", False)),
            source_eos=bool(found.get("add_source_eos", False)),
            norm_epsilon=1e-5 if epsilon is None else float(epsilon),
        )


def _require_translation_model(file: ModelFile) -> None:
    if "Decoder" in file.specification:
        raise ForeignModelError(
            f"{file.path} is a language model ({file.specification}), which has no encoder; "
            "this program serves translation models"
        )
    if file.specification not in HEADS:
        names = ", ".join(filter(None, HEADS))
        raise ForeignModelError(f"{file.path} is a {file.specification[:60]!r}, supported are {names}")
    if file.revision > _NEWEST_REVISION:
        raise ForeignModelError(
            f"{file.path} has revision {file.revision} of {file.specification}, at most {_NEWEST_REVISION} is supported"
        )
    for part, meaning in _REFUSED.items():
        for name in file:
            if part in name.split("/"):
                raise ForeignModelError(f"{file.path} has {meaning}, which is not supported: {name}")
    for part in ("alibi", "multi_query_attention"):
        for stack in ("encoder", "decoder"):
            if file.scalar(f"{stack}/{part}", 0):
                raise ForeignModelError(f"{file.path} has {stack}/{part}, which is not supported")


def _newer_name(name: str) -> str:
    """Return the name that a variable of revision 1, named after OpenNMT-tf's, has today."""
    parts = name.removeprefix("transformer/").removesuffix(":0").split("/")
    is_encoder = parts[0] == "encoder"
    words = {
        "w_embs": "embeddings/weight",
        "kernel": "weight",
        "LayerNorm": "layer_norm",
        "dense": "projection",
        "conv1d": "linear_0",
        "conv1d_1": "linear_1",
        "conv1d_2": "linear_2",
        "masked_multi_head": "self_attention",
        "multi_head": "self_attention" if is_encoder else "attention",
    }
    return "/".join(words.get(part, part) for part in parts)


def _old_settings(file: ModelFile) -> dict[str, Any]:
    texts = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    found: dict[str, Any] = {name: file.text(name, usual) for name, usual in texts.items()}
    found["add_source_bos"] = file.scalar("with_source_bos", 0)
    found["add_source_eos"] = file.scalar("with_source_eos", 0)
    starts_with_bos = file.scalar("with_target_bos", 1)
    found["decoder_start_token"] = found["bos_token"] if starts_with_bos else found["eos_token"]
    if file.scalar("user_decoder_start_tokens", 0):
        found["decoder_start_token"] = None
    return found


def _alignment(file: ModelFile, config: ModelConfig) -> AlignmentHeads | None:
    """Return the heads that the file names; the default, the first one of the last layer, is no choice of anybody."""
    layer = int(file.scalar("decoder/alignment_layer", file.scalar("alignment_layer", -1)))
    number = int(file.scalar("decoder/alignment_heads", file.scalar("alignment_heads", 1)))
    if (layer, number) == (-1, 1):
        return None
    num_layers, number = config.num_decoder_layers, number or config.num_heads
    if not (-num_layers <= layer < num_layers and 1 <= number <= config.num_heads):
        raise ForeignModelError(f"{file.path}: there are no {number} alignment heads in layer {layer}")
    return AlignmentHeads(heads=tuple((layer % num_layers, head) for head in range(number)))


def _named_languages(directory: Path) -> tuple[tuple[str, str], bool]:
    """Return source and target as a checkpoint's tokenizer names them, and whether a source's token is behind it."""
    path = directory / "tokenizer_config.json"
    settings = read_settings(path) if path.is_file() else {}
    named = [
        next(filter(None, (text_of(settings, name) for name in names)), "")
        for names in (("src_lang", "source_lang"), ("tgt_lang", "target_lang"))
    ]
    return (named[0], named[1]), flag(settings, "legacy_behaviour", path, default=False)


def _model_directory(directory: Path) -> Path:
    inner = directory / "model"  # of an Argos package
    return inner if (inner / MODEL_NAME).is_file() and not (directory / MODEL_NAME).is_file() else directory


def _vocabularies(directory: Path, unknown: str) -> tuple[list[str], list[str]]:
    """Return the tokens of both sides by id; an unknown token that is missing is added, as CTranslate2 does."""
    shared = _tokens(directory, "shared_vocabulary")
    source = shared or _tokens(directory, "source_vocabulary")
    target = shared or _tokens(directory, "target_vocabulary")
    if source is None or target is None:
        missing = "source" if source is None else "target"
        raise ForeignModelError(f"{directory} has neither shared_vocabulary nor {missing}_vocabulary (.json or .txt)")
    if unknown not in source:
        source = [*source, unknown]
    return source, target if unknown in target else [*target, unknown]


def _tokens(directory: Path, name: str) -> list[str] | None:
    path = directory / f"{name}.json"
    if not path.is_file():
        text = directory / f"{name}.txt"
        return read_lines(text) if text.is_file() else None
    tokens = read_json(path)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ForeignModelError(f"{path} is no list of tokens")
    return tokens
