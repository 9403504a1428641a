"""Sentence pairs -> batches of token ids, in an order that a resumed run repeats, ahead of a GPU that trains on them.

Knows no model.  Axes: B batch, S source, T target.
"""

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from model.augment import augment
from model.config import BOS_ID, PAD_ID
from model.corpus import Pair
from model.recipe import AugmentationConfig, BatchConfig, Languages
from model.templates import generate_pairs
from model.tokenizer import Tokenizer

_POOL_BATCHES = 50  # batches whose sentences are sorted by length together
_DRAWN_TOGETHER = 16_384  # pairs whose batches are made, mixed and trained on before the next ones are looked at
_GROUPS_AHEAD = 16  # that a process makes before a GPU asks for them
_MOST_MAKERS = 8  # processes that make batches: a GPU trains on more tokens a second than one of them makes
_SAMPLING_ALPHA = 0.3  # a fifth more tokens on Tatoeba's German; 0.2 gives two fifths, 0.5 a twentieth


class Example(NamedTuple):
    """Token ids of a pair, both sides with end-of-sentence."""

    source: list[int]
    target: list[int]

    @property
    def num_tokens(self) -> int:
        """Length of the longer side."""
        return max(len(self.source), len(self.target))


class Draft(NamedTuple):
    """A pair and its ids in the tokenizer's own pieces, whose number decides in which batch it is."""

    pair: Pair
    example: Example

    @property
    def num_tokens(self) -> int:
        """Length of the longer side."""
        return self.example.num_tokens


class _Sized(Protocol):
    @property
    def num_tokens(self) -> int: ...


_S = TypeVar("_S", bound=_Sized)
Encode = Callable[[str], list[int]]  # text -> token ids


def sampling_encoder(tokenizer: Tokenizer, share: float, seed: int) -> Encode:
    """Return `encode` with a share of the texts in pieces drawn at random, which teaches many spellings (Kudo 2018).

    The same seed chooses the same texts on every machine; their pieces repeat within a process only, because
    SentencePiece 0.2.3 salts its random generator by process.
    """
    rng = random.Random(seed)
    tokenizer.seed(seed)
    return lambda text: tokenizer.sample(text, _SAMPLING_ALPHA) if rng.random() < share else tokenizer.encode(text)


def encode_pair(pair: Pair, config: BatchConfig, encode: Encode, encode_target: Encode | None = None) -> Example | None:
    """Return the example of a pair; None where it is empty, too long or of too unequal lengths."""
    example = Example(encode(pair.source), (encode_target or encode)(pair.target))
    shorter, longer = sorted(map(len, example))
    longest = min(config.max_sentence_tokens, config.max_length_ratio * shorter + 4)
    return example if shorter > 0 and longer <= longest else None


def encode_pairs(
    pairs: Iterable[Pair], config: BatchConfig, encode: Encode, encode_target: Encode | None = None
) -> list[Example]:
    """Return the examples of the pairs that have one."""
    return [example for pair in pairs if (example := encode_pair(pair, config, encode, encode_target))]


class TrainingBatch(NamedTuple):
    """Padded tensors of some examples."""

    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target_inputs: Tensor  # [B, T], begin-of-sentence first
    target_outputs: Tensor  # [B, T], end-of-sentence last

    def to(self, device: torch.device) -> "TrainingBatch":
        """Return the same batch on `device`."""
        return TrainingBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def collate(examples: Sequence[Example]) -> TrainingBatch:
    """Pad the examples to their longest, on the right."""
    return TrainingBatch(
        _pad([example.source for example in examples]),
        torch.tensor([len(example.source) for example in examples]),
        _pad([[BOS_ID, *example.target[:-1]] for example in examples]),
        _pad([example.target for example in examples]),
    )


def _pad(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])


def cut_batches(examples: Sequence[_S], max_tokens: int) -> Iterator[list[_S]]:
    """Yield consecutive runs of examples whose padded size, rows x longest side, stays within `max_tokens`."""
    run: list[_S] = []
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
    """Training batches; epoch e of a seed is the same sequence on every machine and after every resume.

    Where pieces are sampled, a resumed epoch has the same pairs in other pieces (`sampling_encoder`), and a batch may
    be somewhat larger than its budget, which counts whole pieces.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizer: Tokenizer,
        config: BatchConfig,
        augmentation: AugmentationConfig,
        seed: int,
        *,
        languages: Languages | None = None,
        following: Mapping[Pair, Pair] | None = None,
    ) -> None:
        """Use these pairs; each epoch changes some of them and leaves out those that do not fit.

        Args:
            pairs: of all corpora.
            tokenizer: of both sides.
            config: size of a batch.
            augmentation: what is changed, and how often.
            seed: of order and changes.
            languages: of the pairs that are made by rule; only needed for these.
            following: the next pair of those that stand in a document.

        Raises:
            ValueError: there are no pairs, none of them fits, or the tokenizer has no sentinels and some are asked for.
        """
        if (augmentation.sentinels or augmentation.tags) and not tokenizer.sentinels:
            raise ValueError(
                "augmentation.sentinels or tags is above 0, the tokenizer has no sentinels: start with --init from a "
                "model that model.tools.extend_vocabulary has made"
            )
        if not any(encode_pair(pair, config, tokenizer.encode) for pair in pairs):
            raise ValueError(
                f"no pair to train on: of {len(pairs):,} none has two sides of at most {config.max_sentence_tokens} "
                f"tokens that differ in length by less than a factor of {config.max_length_ratio}"
            )
        self._pairs = pairs
        # Without changes that place sentinels, a control character of a corpus is none.
        self._tokenizer = tokenizer.marked() if augmentation.sentinels or augmentation.tags else tokenizer
        self._config = config
        self._augmentation = augmentation
        self._seed = seed
        self._languages = languages
        self._following = following or {}

    def epoch(self, number: int, skip: int = 0) -> Iterator[TrainingBatch]:
        """Yield the batches of epoch `number`, without padding the first `skip`, which are left out."""
        rng = random.Random(self._seed * 1_000_003 + number)
        pairs = list(self._pairs)
        if self._languages and self._augmentation.templates:
            num_generated = round(self._augmentation.templates * len(pairs))
            pairs += generate_pairs(num_generated, self._languages, rng.randrange(2**32))
        rng.shuffle(pairs)
        number_of_batch = itertools.count()
        seed = rng.randrange(2**32)
        for start in range(0, len(pairs), _DRAWN_TOGETHER):
            for run in self._runs(pairs[start : start + _DRAWN_TOGETHER], rng):
                if (batch := next(number_of_batch)) >= skip:
                    yield collate(self._sampled(run, seed + batch))

    def _runs(self, pairs: Sequence[Pair], rng: random.Random) -> list[list[Draft]]:
        """Change and encode pairs, and return their batches in random order."""
        changed = augment(pairs, self._augmentation, rng.randrange(2**32), self._following)
        encode = self._tokenizer.encode
        drafts = [Draft(pair, example) for pair in changed if (example := encode_pair(pair, self._config, encode))]
        return self._bucket(drafts, rng) if drafts else []

    def _sampled(self, run: list[Draft], seed: int) -> list[Example]:
        """Return the examples of a batch, a share of their texts in sampled pieces where that still fits."""
        share = self._augmentation.sample_pieces
        if not share:
            return [draft.example for draft in run]
        encode = sampling_encoder(self._tokenizer, share, seed % 2**32)
        return [encode_pair(draft.pair, self._config, encode) or draft.example for draft in run]

    def _bucket(self, examples: list[Draft], rng: random.Random) -> list[list[Draft]]:
        """Sort by length inside pools, cut, and shuffle the batches: little padding, random order."""
        mean_tokens = sum(example.num_tokens for example in examples) / len(examples)
        pool_size = int(_POOL_BATCHES * self._config.max_tokens / mean_tokens) + 1
        runs: list[list[Draft]] = []
        for start in range(0, len(examples), pool_size):
            pool = sorted(
                examples[start : start + pool_size], key=lambda draft: (draft.num_tokens, len(draft.example.source))
            )
            runs += cut_batches(pool, self._config.max_tokens)
        rng.shuffle(runs)
        return runs


class BatchGroup(NamedTuple):
    """The batches of one update, and where a run stands when it has trained on them."""

    batches: list[TrainingBatch]
    epoch: int
    batch: int  # batches of the epoch so far


class BatchGroups(IterableDataset[BatchGroup]):
    """Endless groups of `size` batches, from a place in an epoch on; an epoch's last group may be smaller.

    Where several processes make them, each has epochs of its own, and their groups take turns.
    """

    def __init__(self, batches: EpochBatches, size: int, *, epoch: int = 0, skip: int = 0) -> None:
        self._batches, self._size, self._epoch, self._skip = batches, size, epoch, skip

    def __iter__(self) -> Iterator[BatchGroup]:
        """Yield the groups in order; those of this process's epochs where it is one of several."""
        maker = get_worker_info()
        first, step = (maker.id, maker.num_workers) if maker else (0, 1)
        done = self._skip if first == 0 else 0
        for epoch in itertools.count(self._epoch + first, step):
            batches = self._batches.epoch(epoch, done)
            while group := list(itertools.islice(batches, self._size)):
                done += len(group)
                yield BatchGroup(group, epoch, done)
            done = 0

    def prefetched(self, makers: int | None = None, *, pinned: bool = True) -> Iterator[BatchGroup]:
        """Yield the groups of other processes, which work ahead; pinned tensors go to a GPU without a wait.

        Args:
            makers: how many processes; with one, the order is that of `iter`.  Default: half of the cores, at most 8.
            pinned: whether the tensors lie in pinned memory.
        """
        makers = makers or min(_MOST_MAKERS, max(1, len(os.sched_getaffinity(0)) // 2))
        return iter(
            DataLoader(self, batch_size=None, num_workers=makers, prefetch_factor=_GROUPS_AHEAD, pin_memory=pinned)
        )
