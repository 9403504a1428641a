"""Sentence pairs -> batches of token ids: length bucketing, token budget, an order that a resumed run repeats.

Knows nothing of files or models.  Axes: B batch, S source, T target.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import BOS_ID, PAD_ID
from model.corpus import AugmentationConfig, Pair, augment
from model.ranges import require_at_least
from model.tokenizer import Tokenizer

_POOL_BATCHES = 50  # batches whose sentences are sorted by length together
_SAMPLING_ALPHA = 0.3  # a fifth more tokens on Tatoeba's German; 0.2 gives two fifths, 0.5 a twentieth


class Example(NamedTuple):
    """Token ids of a pair, both sides with end-of-sentence."""

    source: list[int]
    target: list[int]

    @property
    def num_tokens(self) -> int:
        """Length of the longer side."""
        return max(len(self.source), len(self.target))


class Batch(NamedTuple):
    """Padded tensors of some examples."""

    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target_inputs: Tensor  # [B, T], begin-of-sentence first
    target_outputs: Tensor  # [B, T], end-of-sentence last

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """How examples are cut into batches."""

    max_tokens: int = 4_096  # padded tokens of the longer side
    max_sentence_tokens: int = 128  # longer pairs are left out
    max_length_ratio: float = 2.5  # pairs whose sides differ more are left out as misaligned (short ones excepted)

    def __post_init__(self) -> None:
        require_at_least("batches", 1, **asdict(self))


class Sampling(NamedTuple):
    """Which texts are cut into pieces drawn at random, so that a word is learnt in many spellings (Kudo 2018)."""

    share: float  # of the texts
    seed: int  # below 2**32

    def encoder(self, tokenizer: Tokenizer) -> Callable[[str], list[int]]:
        """A function from text to token ids; of a seed it gives the same ones in the same order of texts."""
        rng = random.Random(self.seed)
        tokenizer.seed(self.seed)
        return lambda text: (
            tokenizer.sample(text, _SAMPLING_ALPHA) if rng.random() < self.share else tokenizer.encode(text)
        )


def encode_pairs(
    pairs: Sequence[Pair], tokenizer: Tokenizer, config: BatchConfig, sampling: Sampling | None = None
) -> list[Example]:
    """Examples of the pairs that are neither empty, too long nor of too unequal lengths."""
    encode = sampling.encoder(tokenizer) if sampling else tokenizer.encode
    examples = (Example(encode(pair.source), encode(pair.target)) for pair in pairs)
    return [example for example in examples if _fits(example, config)]


def _fits(example: Example, config: BatchConfig) -> bool:
    shorter, longer = sorted((len(example.source), len(example.target)))
    return shorter > 0 and longer <= config.max_sentence_tokens and longer <= config.max_length_ratio * shorter + 4


def collate(examples: Sequence[Example]) -> Batch:
    """Pad the examples to their longest, on the right."""
    return Batch(
        _pad([example.source for example in examples]),
        torch.tensor([len(example.source) for example in examples]),
        _pad([[BOS_ID, *example.target[:-1]] for example in examples]),
        _pad([example.target for example in examples]),
    )


def _pad(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])


def cut_batches(examples: Sequence[Example], max_tokens: int) -> Iterator[list[Example]]:
    """Consecutive runs of examples whose padded size, rows x longest side, stays within `max_tokens`."""
    run: list[Example] = []
    longest = 0
    for example in examples:
        longest = max(longest, example.num_tokens)
        if run and longest * (len(run) + 1) > max_tokens:
            yield run
            run, longest = [], example.num_tokens
        run.append(example)
    if run:
        yield run


class EpochBatches:
    """Training batches; epoch e of a seed is the same sequence on every machine and after every resume."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizer: Tokenizer,
        config: BatchConfig,
        augmentation: AugmentationConfig,
        seed: int,
    ) -> None:
        """Of these pairs; each epoch changes some of them and leaves out those that do not fit.

        Raises:
            ValueError: there are no pairs, or none of them fits.
        """
        if not any(encode_pairs([pair], tokenizer, config) for pair in pairs):
            raise ValueError(
                f"no pair to train on: of {len(pairs):,} none has two sides of at most {config.max_sentence_tokens} "
                f"tokens that differ in length by less than a factor of {config.max_length_ratio}"
            )
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._config = config
        self._augmentation = augmentation
        self._seed = seed

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """Batches of epoch `number`, the first `skip` left out without padding them."""
        rng = random.Random(self._seed * 1_000_003 + number)  # an order, not a secret
        shuffled = rng.sample(self._pairs, len(self._pairs))
        changed = list(augment(shuffled, self._augmentation, rng.randrange(2**32)))
        share = self._augmentation.sample_pieces
        sampling = Sampling(share, rng.randrange(2**32)) if share else None
        runs = self._bucket(encode_pairs(changed, self._tokenizer, self._config, sampling), rng)
        return (collate(run) for run in runs[skip:])

    def _bucket(self, examples: list[Example], rng: random.Random) -> list[list[Example]]:
        """Sort by length inside pools, cut, and shuffle the batches: little padding, random order."""
        mean_tokens = sum(example.num_tokens for example in examples) / len(examples)
        pool_size = int(_POOL_BATCHES * self._config.max_tokens / mean_tokens) + 1
        runs: list[list[Example]] = []
        for start in range(0, len(examples), pool_size):
            pool = sorted(
                examples[start : start + pool_size], key=lambda example: (example.num_tokens, len(example.source))
            )
            runs += cut_batches(pool, self._config.max_tokens)
        rng.shuffle(runs)
        return runs
