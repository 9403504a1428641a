"""What a bundle's `manifest.json` says: the model's name and shape, its graphs by precision, the checksum of each file.

Knows names and numbers; opens no file (`bundle.py` does).
"""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from model.config import DecodingProfile, ModelConfig, StopRule
from model.languages import Language

# 2: hypotheses share their cache columns, and the step graph ranks a sentence's candidates
# 3: the model is described, and its logits are padded to a multiple of `VOCABULARY_MULTIPLE`
BUNDLE_FORMAT_VERSION = 3
RUNNABLE_FORMAT_VERSIONS = (2, 3)  # of graphs
READABLE_FORMAT_VERSIONS = (1, *RUNNABLE_FORMAT_VERSIONS)  # of a manifest
TOKENIZER_NAME = "shared.spm"
PREFERRED_PRECISIONS = ("int8", "fp32")  # on a CPU
GPU_PRECISION = "fp16"  # the one whose graphs a GPU runs
# Ranges of search parameters, both ends included, in requests and as defaults; translation.proto says the same.
MAX_BEAM_SIZE = 64  # a server's own limit may be lower
LENGTH_PENALTY_RANGE = (0.0, 5.0)
PATIENCE_RANGE = (0.1, 8.0)
_TOKENS_RANGE = (1, (1 << 31) - 1)  # lengths are 32-bit integers; the model's positions are what limits them
_COUNT_RANGES = {
    "beam_size": (1, MAX_BEAM_SIZE),
    "max_target_tokens": _TOKENS_RANGE,
    "max_source_tokens": _TOKENS_RANGE,
    "reliable_source_tokens": _TOKENS_RANGE,
}
_NUMBER_RANGES = {"length_penalty": LENGTH_PENALTY_RANGE, "patience": PATIENCE_RANGE}
# In `TokenizerFiles`: the token of a text's source or target language, of a model of several.
SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source}", "{target}"
_TEXT_FIELDS = ("name", "version", "source_language", "target_language", "shortlist", "golden")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingDefaults:
    """Search parameters of a request that names none, in the ranges of a request, and how every search ends.

    Raises:
        ValueError: a parameter has the wrong type or lies outside its range.
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    patience: float = 1.0
    max_target_tokens: int = 256
    max_source_tokens: int = 512
    reliable_source_tokens: int | None = None  # longer sentences lose quality, and are cut; None: max_source_tokens
    stop_rule: StopRule = StopRule.CTRANSLATE2
    forced_end: bool = False  # as in `DecodingProfile`
    stop_repetition: bool = True  # end a translation that only repeats itself

    def __post_init__(self) -> None:
        for name, (low, high) in _COUNT_RANGES.items():
            value = getattr(self, name)
            if name == "reliable_source_tokens" and value is None:
                continue
            if type(value) is not int or not low <= value <= high:  # a bool is an int by inheritance
                raise ValueError(f"{name} is {value!r}, it must be an integer from {low} to {high}")
        for name, (least, most) in _NUMBER_RANGES.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not least <= value <= most:  # also refuses NaN
                raise ValueError(f"{name} is {value!r}, it must be a number from {least} to {most}")
        for name in ("forced_end", "stop_repetition"):
            if type(value := getattr(self, name)) is not bool:
                raise ValueError(f"{name} is {value!r}, it must be true or false")
        object.__setattr__(self, "stop_rule", StopRule(self.stop_rule))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentHeads:
    """The cross-attention heads whose mean aligns best, and how well, as export has found out.

    A shifted head says most of a token where it is the decoder's input, one step after the one that writes it (Chen et
    al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation").
    """

    heads: tuple[tuple[int, int], ...]  # decoder layer and head of each, from 0
    is_shifted: bool = False
    agreement: float = 0.0  # F1 with a statistical alignment; 0 where nothing was measured
    pairs: int = 0  # sentences that it was measured on


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The graph files of one precision, and how far the graphs are from the PyTorch model."""

    encoder: str
    decoder_step: str
    shortlist_step: str = ""  # of older exports, as the next three; nothing reads them
    projection: str = ""
    arrange: str = ""
    extend: str = ""
    scorer: str = ""  # one pass over a given translation: its log-probabilities and its attention to the source
    repetition_penalty: bool = False  # whether the steps take the factors that it needs
    attention_weights: bool = False  # whether encoder and scorer give the weights of each head on request
    parity: dict[str, float] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """Names of all graph files that this variant has."""
        optional = (self.shortlist_step, self.projection, self.arrange, self.extend, self.scorer)
        return [self.encoder, self.decoder_step, *filter(None, optional)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """Size and checksum that a file must have."""

    sha256: str
    bytes: int


class TokenizerKind(StrEnum):
    """How text becomes token ids."""

    SHARED = "shared"  # one SentencePiece model, whose own ids both sides have
    PIECES = "pieces"  # SentencePiece models, and vocabularies that have the ids
    SPACES = "spaces"  # vocabularies alone: the text consists of tokens with spaces between them


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """The tokenizer of a bundle: its kind, its files, and the tokens around texts.

    Among those, "{source}" and "{target}" stand for the tokens of a text's languages.

    Raises:
        ValueError: the kind is unknown, or a file that it needs is not named.
    """

    kind: TokenizerKind = TokenizerKind.SHARED
    source: str = TOKENIZER_NAME  # SentencePiece model; empty: none
    target: str = ""  # empty: the source's
    source_vocabulary: str = ""  # JSON list of tokens by id
    target_vocabulary: str = ""  # empty: the source's
    unknown: str = "<unk>"
    end: str = "</s>"  # of a target
    source_prompt: tuple[str, ...] = ()  # pieces of text before every source and its prefix
    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ("</s>",)
    target_prefix: tuple[str, ...] = ()  # what every translation begins with
    languages: tuple[Language, ...] = ()  # of a model of several; none: those of the manifest alone
    sentinels: tuple[int, ...] = ()  # ids that stand in for what must come back as it is

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", TokenizerKind(self.kind))
        for name in ("source_prompt", "source_prefix", "source_suffix", "target_prefix", "sentinels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("source", "target", "source_vocabulary", "target_vocabulary", "unknown", "end"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"tokenizer.{name} is {getattr(self, name)!r}, it must be text")
        needed = {"source": self.kind is not TokenizerKind.SPACES}
        needed |= {"source_vocabulary": self.kind is not TokenizerKind.SHARED}
        for name, is_needed in needed.items():
            if is_needed and not getattr(self, name):
                raise ValueError(f"a tokenizer of kind {self.kind} needs the name of its {name}")

    def language(self, code: str) -> Language:
        """Return the language of a BCP 47 tag.

        Raises:
            ValueError: the model does not have it.
        """
        for one in self.languages:
            if one.code == code:
                return one
        raise ValueError(f"the model has no language {code!r} among {len(self.languages)}")

    @property
    def names(self) -> list[str]:
        """Names of all files."""
        return list(filter(None, (self.source, self.target, self.source_vocabulary, self.target_vocabulary)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that is known about a model without opening its graphs."""

    name: str
    version: str
    source_language: str
    target_language: str
    config: ModelConfig
    decoding: DecodingDefaults
    variants: dict[str, Variant]  # by precision
    tokenizer: TokenizerFiles = field(default_factory=TokenizerFiles)
    shortlist: str = ""  # empty: the model has no shortlist
    golden: str = ""  # empty: the bundle has no golden sentences
    alignment: AlignmentHeads | None = None  # of the variants' scorers; None: they have none
    exported_with: dict[str, str] = field(default_factory=dict)
    files: dict[str, FileEntry] = field(default_factory=dict)
    format_version: int = BUNDLE_FORMAT_VERSION

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target of a request that names none."""
        return self.source_language, self.target_language

    @property
    def used_files(self) -> list[str]:
        """Names of the files that a server needs."""
        graphs = [name for variant in self.variants.values() for name in variant.files]
        return [*self.tokenizer.names, *graphs, *filter(None, (self.shortlist, self.golden))]

    @property
    def num_logits(self) -> int:
        """Logits of a row in the step graphs."""
        return self.config.num_logits if self.format_version >= 3 else self.config.vocab_size

    @property
    def profile(self) -> DecodingProfile:
        """What a search must know of the model."""
        config, decoding = self.config, self.decoding
        return DecodingProfile(config.start_id, config.eos_id, decoding.stop_rule, decoding.forced_end)

    def to_json(self) -> str:
        """Return the text of `manifest.json`."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the manifest that `to_json` wrote.

        Raises:
            ValueError, TypeError, KeyError: the text is not a manifest; the message names the part.
        """
        fields: dict[str, Any] = json.loads(text)
        for name in _TEXT_FIELDS:
            if not isinstance(fields.get(name, ""), str):
                raise TypeError(f"{name} is {fields[name]!r}, it must be text")
        tokenizer = fields.get("tokenizer", TOKENIZER_NAME)
        if isinstance(tokenizer, str):  # formats 1 and 2 have the name of the shared model alone
            tokenizer = {"source": tokenizer}
        if not isinstance(tokenizer, dict):
            raise TypeError(f"tokenizer is {tokenizer!r}, it must be text or the names of its files")
        languages = tuple(Language(**one) for one in tokenizer.get("languages", ()))
        fields["tokenizer"] = TokenizerFiles(**{**tokenizer, "languages": languages})
        fields["config"] = ModelConfig(**fields["config"])
        fields["decoding"] = DecodingDefaults(**fields["decoding"])
        fields["variants"] = {precision: Variant(**variant) for precision, variant in fields["variants"].items()}
        if fields.get("alignment"):
            heads = tuple((int(layer), int(head)) for layer, head in fields["alignment"]["heads"])
            fields["alignment"] = AlignmentHeads(**{**fields["alignment"], "heads": heads})
        fields["files"] = {name: FileEntry(**entry) for name, entry in fields["files"].items()}
        manifest = cls(**fields)
        if manifest.tokenizer.languages:
            for code in manifest.languages:
                manifest.tokenizer.language(code)
        return manifest
