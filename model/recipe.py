"""A training recipe: a TOML file as frozen dataclasses, one per reader.

A wrong name or value stops the run with the file, the key and what is accepted.  Imports no torch.
"""

import tomllib
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from model.config import Dimensions, ModelConfig

T = TypeVar("T")

_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _require(table: str, accepts: Callable[[float], bool], wanted: str, **values: float) -> None:
    """Refuse the first value that is not accepted, as TABLE.NAME; NaN is never accepted by a comparison."""
    for name, value in values.items():
        if not accepts(value):
            raise ValueError(f"{table}.{name} is {value}, {wanted}")


def _require_positive(table: str, **counts: float) -> None:
    _require(table, lambda count: count >= 1, "at least 1 is needed", **counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """Translation direction, BCP 47."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """One corpus of a recipe and how much of it to take."""

    name: str
    max_pairs: int | None = None  # a seeded sample of this many; None: all
    repeat: int = 1  # times each pair is seen in an epoch
    verbatim: bool = False  # every line as it stands: nothing left out, no spelling changed
    document: bool = False  # the lines are in the order of a text: one is joined with the next

    def __post_init__(self) -> None:
        limit = {} if self.max_pairs is None else {"max_pairs": self.max_pairs}
        _require_positive(f"corpus {self.name!r}", repeat=self.repeat, **limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentationConfig:
    """Share of training pairs that are changed, drawn anew each epoch."""

    concatenate: float = 0.0  # joined with the next one to three pairs: two to four sentences in one text
    lowercase_source: float = 0.0
    uppercase: float = 0.0  # both sides in capitals
    drop_final_punctuation: float = 0.0  # from both sides
    typos: float = 0.0  # letters swapped or lost, signs left out, in the source
    emoji: float = 0.0  # the same pictures on both sides
    brackets: float = 0.0  # both sides in the same brackets, or behind the same sign
    sentinels: float = 0.0  # names, numbers, addresses and placeholders that stand on both sides become sentinels
    tags: float = 0.0  # sentinels as tags around the same span, around a sentence, or beside it
    templates: float = 0.0  # of the number of pairs: so many more are made by rule (`templates.py`)
    sample_pieces: float = 0.0  # texts cut into pieces drawn at random; source and target are drawn separately

    def __post_init__(self) -> None:
        wanted = "it must be at least 0 and at most 1"
        _require("augmentation", lambda share: 0 <= share <= 1, wanted, **asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """How examples are cut into batches."""

    max_tokens: int = 4_096  # padded tokens of the longer side
    max_sentence_tokens: int = 128  # longer pairs are left out
    max_length_ratio: float = 2.5  # pairs whose sides differ more are left out as misaligned (short ones excepted)

    def __post_init__(self) -> None:
        _require_positive("batches", **asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """Subword model, trained on both sides of the training text."""

    vocab_size: int = 8_000
    model_type: str = "unigram"
    character_coverage: float = 0.9998  # share of the text's characters that get a piece of their own

    def __post_init__(self) -> None:
        wanted = "it must be at least 0 and at most 1"
        _require("tokenizer", lambda share: 0 <= share <= 1, wanted, character_coverage=self.character_coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """Adam as in section 5.3 of the paper, or Adam and Muon; label smoothing and dropout as in 5.4."""

    peak_learning_rate: float = 1e-3
    warmup_updates: int = 1_000
    starts_at_peak: bool = False  # the peak from update 1 on, instead of the warm-up's rise to it
    cooldown_updates: int = 0  # last updates, over which the rate falls linearly to zero
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    clip_norm: float = 1.0
    accumulate_batches: int = 1
    label_smoothing: float = 0.1
    dropout: float = 0.1
    matrices: str = "adam"  # optimiser of the layers' matrices: "adam" or "muon"; other parameters always use Adam
    muon_weight_decay: float = 0.1  # times the learning rate: the share of a weight that one update of Muon removes

    def __post_init__(self) -> None:
        table = "optimizer"
        _require_positive(table, warmup_updates=self.warmup_updates, accumulate_batches=self.accumulate_batches)
        not_negative = {"cooldown_updates": self.cooldown_updates, "muon_weight_decay": self.muon_weight_decay}
        _require(table, lambda value: value >= 0, "at least 0 is needed", **not_negative)
        rates = {"peak_learning_rate": self.peak_learning_rate, "epsilon": self.epsilon, "clip_norm": self.clip_norm}
        _require(table, lambda rate: rate > 0, "it must be above 0", **rates)
        betas = {f"betas[{index}]": beta for index, beta in enumerate(self.betas)}
        shares = {"label_smoothing": self.label_smoothing, "dropout": self.dropout, **betas}
        _require(table, lambda share: 0 <= share < 1, "it must be at least 0 and below 1", **shares)
        if self.matrices not in ("adam", "muon"):
            raise ValueError(f"optimizer.matrices is {self.matrices!r}, accepted are 'adam' and 'muon'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """How long to train and when to look."""

    max_updates: int = 10_000
    minutes: float | None = None  # the whole schedule is stretched or cut to this time; None: updates are counted
    validate_every: int = 500  # updates; a checkpoint is written each time
    patience: int = 10  # validations without a better loss before training stops
    average_last: int = 5  # checkpoints averaged at the end: the last, or those up to the best where patience ended
    keep_last: int = 10  # newest checkpoints kept on disk, beside those up to the best
    validation_sets: tuple[str, ...] = ("tatoeba_dev",)
    validation_sentences: int = 300  # of each set, for loss, BLEU and chrF during training
    held_out: float = 0.0  # share of the corpora's pairs that is not trained on, and one more validation set
    bleu_tokenizer: str = "13a"  # sacrebleu's; "none" for text that is tokenised already

    def __post_init__(self) -> None:
        names = ("max_updates", "validate_every", "patience", "average_last", "validation_sentences")
        _require_positive("schedule", **{name: getattr(self, name) for name in names})
        limit = {} if self.minutes is None else {"minutes": self.minutes}
        _require("schedule", lambda minutes: minutes > 0, "it must be above 0", **limit)
        _require(
            "schedule", lambda share: 0 <= share <= 0.5, "it must be at least 0 and at most 0.5", held_out=self.held_out
        )
        if not self.validation_sets and not self.held_out:
            raise ValueError("schedule.validation_sets is empty and held_out is 0, one of them is needed")
        if self.keep_last < self.average_last:
            raise ValueError(
                f"schedule.keep_last is {self.keep_last}, at least average_last ({self.average_last}) is needed"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that determines a training run, besides the data."""

    name: str
    languages: Languages
    corpora: tuple[CorpusConfig, ...]
    seed: int = 1
    model: Dimensions = field(default_factory=Dimensions)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    batches: BatchConfig = field(default_factory=BatchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        pieces, embeddings = self.tokenizer.vocab_size, self.model.vocab_size
        if pieces != embeddings:
            raise ValueError(f"tokenizer.vocab_size is {pieces}, it must be model.vocab_size ({embeddings})")
        if self.augmentation.sample_pieces and self.tokenizer.model_type != "unigram":
            raise ValueError(
                f"augmentation.sample_pieces is {self.augmentation.sample_pieces}, tokenizer.model_type "
                f"{self.tokenizer.model_type!r}: pieces are drawn from a unigram model alone"
            )
        longest, positions = self.batches.max_sentence_tokens, self.model.max_positions
        if longest > positions:
            raise ValueError(
                f"batches.max_sentence_tokens is {longest}, at most model.max_positions ({positions}) is accepted"
            )

    @property
    def config(self) -> ModelConfig:
        """The model that is trained."""
        return ModelConfig(**asdict(self.model))


def load_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        ValueError: the file is no TOML, a key is unknown or missing, a value has the wrong type, or values contradict.
    """
    try:
        return build(Recipe, tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"recipe {path}: {error}") from error


def build(kind: type[T], values: object, where: str = "") -> T:
    """Build a dataclass from a table of TOML or JSON, nested tables included; every key and type is checked.

    Fields are numbers, text, enumerations, tuples, optional, or dataclasses.  `where` is the table's key, for messages.

    Raises:
        ValueError: a key is unknown or missing, a value has the wrong type, or the dataclass refuses it.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where or 'all of it'} is {values!r}, it must be a table")  # noqa: TRY004  # all of it is one kind of mistake
    entries = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]  # T is a dataclass
    for key in values:
        if key not in entries:
            raise ValueError(f"unknown key {key!r} for {kind.__name__}; known are {', '.join(entries)}")
    prefix = f"{where}." if where else ""
    for key, entry in entries.items():
        if key not in values and entry.default is MISSING and entry.default_factory is MISSING:
            raise ValueError(f"{prefix}{key} is missing")
    return kind(**{key: _convert(entries[key].type, value, f"{prefix}{key}") for key, value in values.items()})


def _convert(kind: Any, value: Any, key: str) -> Any:
    """The value as a field of this type; a whole number is a number too, but `true` is neither."""
    if isinstance(kind, UnionType):  # of one type and None
        [inner] = [one for one in get_args(kind) if one is not NoneType]
        return None if value is None else _convert(inner, value, key)
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind), value, key)
    if isinstance(kind, type) and is_dataclass(kind):
        return build(kind, value, key)
    if issubclass(kind, StrEnum):
        accepted = [str(member) for member in kind]
        if value not in accepted:
            raise ValueError(f"{key} is {value!r}, accepted are {' and '.join(map(repr, accepted))}")
    elif type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{key} is {value!r}, it must be {_TYPE_NAMES[kind]}")
    return kind(value)


def _tuple(kinds: tuple[Any, ...], value: Any, key: str) -> tuple[Any, ...]:
    """A tuple of any length where the kinds end with an ellipsis, else with one entry of each kind."""
    if not isinstance(value, list):
        raise ValueError(f"{key} is {value!r}, it must be a list")  # noqa: TRY004 - as every wrong value
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise ValueError(f"{key} has {len(value)} entries, it must have {len(kinds)}")
    return tuple(
        _convert(kind, entry, f"{key}[{index}]") for index, (kind, entry) in enumerate(zip(kinds, value, strict=True))
    )
