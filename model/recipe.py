"""A training recipe: a TOML file as frozen dataclasses, one per reader.

A wrong name or value stops the run with the file, the key and what is accepted.
"""

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from model.config import ModelConfig
from model.corpus import AugmentationConfig, CorpusConfig, Languages
from model.data import BatchConfig
from model.ranges import require_above_zero, require_at_least, require_share
from model.recipe_reading import build


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """Subword model, trained on both sides of the training text."""

    vocab_size: int = 8_000
    model_type: str = "unigram"
    character_coverage: float = 0.9998  # share of the text's characters that get a piece of their own

    def __post_init__(self) -> None:
        require_share("tokenizer", character_coverage=self.character_coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """Adam as in section 5.3 of the paper, or beside Muon; label smoothing and dropout as in 5.4."""

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
    matrices: str = "adam"  # who updates those of the layers: "adam" or "muon"; all other parameters are Adam's
    muon_weight_decay: float = 0.1  # times the learning rate: the share of a weight of Muon's that an update takes away

    def __post_init__(self) -> None:
        table = "optimizer"
        require_at_least(table, 1, warmup_updates=self.warmup_updates, accumulate_batches=self.accumulate_batches)
        require_at_least(table, 0, cooldown_updates=self.cooldown_updates, muon_weight_decay=self.muon_weight_decay)
        require_above_zero(
            table, peak_learning_rate=self.peak_learning_rate, epsilon=self.epsilon, clip_norm=self.clip_norm
        )
        require_share(table, below=1, label_smoothing=self.label_smoothing, dropout=self.dropout)
        require_share(table, below=1, **{f"betas[{index}]": beta for index, beta in enumerate(self.betas)})
        if self.matrices not in ("adam", "muon"):
            raise ValueError(f"optimizer.matrices is {self.matrices!r}, accepted are 'adam' and 'muon'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """How long to train and when to look."""

    max_updates: int = 10_000
    validate_every: int = 500  # updates; a checkpoint is written each time
    patience: int = 10  # validations without a better loss before training stops
    average_last: int = 5  # checkpoints averaged at the end: the last, or those up to the best where patience ended
    keep_last: int = 10  # newest checkpoints kept on disk, beside those up to the best
    validation_sets: tuple[str, ...] = ("tatoeba_dev",)
    validation_sentences: int = 300  # of each set, for loss, BLEU and chrF during training
    bleu_tokenizer: str = "13a"  # sacrebleu's; "none" for text that is tokenised already

    def __post_init__(self) -> None:
        require_at_least(
            "schedule",
            1,
            max_updates=self.max_updates,
            validate_every=self.validate_every,
            patience=self.patience,
            average_last=self.average_last,
            validation_sentences=self.validation_sentences,
        )
        if not self.validation_sets:
            raise ValueError("schedule.validation_sets is empty, at least one is needed")
        if self.keep_last < self.average_last:
            raise ValueError(
                f"schedule.keep_last is {self.keep_last}, at least average_last ({self.average_last}) is needed"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything a training run is determined by, besides the data."""

    name: str
    languages: Languages
    corpora: tuple[CorpusConfig, ...]
    seed: int = 1
    model: ModelConfig = field(default_factory=ModelConfig)
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

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON types, for the log of a run."""
        return asdict(self)


def load_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        ValueError: the file is no TOML, a key is unknown or missing, a value has the wrong type, or values contradict.
    """
    try:
        return build(Recipe, tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"recipe {path}: {error}") from error
