"""Parallel text on disk -> cleaned sentence pairs -> batches of token ids, in an order that a resumed run repeats.

A corpus NAME lies in DATA/train/NAME/NAME.{en,de}.gz, a development set in DATA/dev/NAME.{en,de}.gz: UTF-8, one
sentence a line, line-aligned.  A NAME with a slash is a path: of A/B the files are DATA/A/B.{en,de}.gz.
Knows no model.  Axes: B batch, S source, T target.
"""

import gzip
import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import BOS_ID, PAD_ID
from model.recipe import AugmentationConfig, BatchConfig, CorpusConfig, Languages
from model.tokenizer import Tokenizer

_POOL_BATCHES = 50  # batches whose sentences are sorted by length together
_SAMPLING_ALPHA = 0.3  # a fifth more tokens on Tatoeba's German; 0.2 gives two fifths, 0.5 a twentieth
_MARKUP = re.compile(r"https?://|[<>{}|]|\\|%[sd(]|\[!")
_LETTER = re.compile(r"[^\W\d_]")
# The reform of 1996 writes ss after a short vowel.  These stems are the ones Europarl's old spelling uses.
_SHORT_VOWEL_STEM = re.compile(
    r"(\bda|mu(?!ße)|mü(?!ßig)|schu|schlu|flu|wu|wü|bewu|nu|ku|gu|ru(?=ßland)|proze|kongre|exze|regre|kompromi|gewi|\bbi|\bri|\bmi|"
    r"unmi|ermi|bemi|beimi|vergi|fri|anla|erla|nachla|abla|verla|\bla|lä|\bha|hä|(?<!lit)fa|(?<!s)pa|bla|kra|na)ß",
    re.IGNORECASE,
)


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_lines(path: Path) -> list[str]:
    """Return the lines of a plain or gzipped UTF-8 file; only LF or CRLF ends a line.

    Raises:
        FileNotFoundError: with the path and the layout that is expected.
        ValueError: the file is damaged, or no UTF-8; with the path.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; expected DATA/train/NAME/NAME.LANG.gz and DATA/dev/NAME.LANG.gz"
        )
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="\n") as lines:
            return [line.removesuffix("\n").removesuffix("\r") for line in lines]
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def read_dev_set(data: Path, name: str, languages: Languages) -> list[Pair]:
    """Return a development set, untouched.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length; the set is empty.
    """
    pairs = _read_pairs(data / (name if "/" in name else f"dev/{name}"), languages)
    if not pairs:
        raise ValueError(f"development set {name} has no sentences")
    return pairs


def read_corpus(data: Path, corpus: CorpusConfig, languages: Languages, seed: int) -> list[Pair]:
    """Return a training corpus: cleaned unless it is to stay verbatim, then capped.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the sides differ in length.
    """
    name = corpus.name
    pairs = _read_pairs(data / (name if "/" in name else f"train/{name}/{name}"), languages)
    if not corpus.verbatim:
        pairs = [clean for pair in pairs if (clean := _clean(pair, languages))]
    if corpus.max_pairs is not None and len(pairs) > corpus.max_pairs:
        pairs = random.Random(seed).sample(pairs, corpus.max_pairs)
    return pairs * corpus.repeat


def _read_pairs(stem: Path, languages: Languages) -> list[Pair]:
    return read_pairs(
        *(stem.with_name(f"{stem.name}.{language}.gz") for language in (languages.source, languages.target))
    )


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """Return the pairs of two line-aligned files, without blanks at their ends.

    Raises:
        FileNotFoundError, ValueError: as for `read_lines`; the files differ in length.
    """
    sides = read_lines(source), read_lines(target)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{source} has {len(sides[0])} lines, {target} has {len(sides[1])}: they must be aligned")
    return [Pair(*map(str.strip, pair)) for pair in zip(*sides, strict=True)]


def _clean(pair: Pair, languages: Languages) -> Pair | None:
    """The pair in today's spelling, or None where it is markup, has no letters, or is merely copied."""
    if not all(_LETTER.search(side) for side in pair) or any(_MARKUP.search(side) for side in pair):
        return None
    if pair.source == pair.target and len(pair.source.split()) > 3:  # longer copies are untranslated text
        return None
    source, target = (
        modernize_german(side) if language == "de" else side
        for side, language in zip(pair, (languages.source, languages.target), strict=True)
    )
    return Pair(source, target)


def modernize_german(text: str) -> str:
    """Turn spelling from before 1996 (daß, muß, Ausschuß) into today's (dass, muss, Ausschuss); Maß and groß stay."""
    return _SHORT_VOWEL_STEM.sub(r"\1ss", text)


def augment(pairs: Sequence[Pair], config: AugmentationConfig, seed: int) -> Iterator[Pair]:
    """Yield the pairs in their order, some of them changed; the same seed changes the same ones."""
    rng = random.Random(seed)
    for number, (source, target) in enumerate(pairs):
        if rng.random() < config.concatenate:
            after = pairs[(number + 1) % len(pairs)]
            source, target = f"{source} {after.source}", f"{target} {after.target}"  # noqa: PLW2901
        if rng.random() < config.drop_final_punctuation:
            source, target = source.rstrip(".!?"), target.rstrip(".!?")  # noqa: PLW2901
        if rng.random() < config.lowercase_source:
            source = source.lower()  # noqa: PLW2901
        yield Pair(source, target)


class Example(NamedTuple):
    """Token ids of a pair, both sides with end-of-sentence."""

    source: list[int]
    target: list[int]

    @property
    def num_tokens(self) -> int:
        """Length of the longer side."""
        return max(len(self.source), len(self.target))


Encode = Callable[[str], list[int]]  # text -> token ids


def sampling_encoder(tokenizer: Tokenizer, share: float, seed: int) -> Encode:
    """Return `encode` with a share of the texts in pieces drawn at random, which teaches many spellings (Kudo 2018).

    The same seed chooses the same texts on every machine; their pieces repeat within a process only, because
    SentencePiece 0.2.3 salts its random generator by process.
    """
    rng = random.Random(seed)
    tokenizer.seed(seed)
    return lambda text: tokenizer.sample(text, _SAMPLING_ALPHA) if rng.random() < share else tokenizer.encode(text)


def encode_pairs(pairs: Sequence[Pair], config: BatchConfig, encode: Encode) -> list[Example]:
    """Return examples of the pairs that are neither empty, too long nor of too unequal lengths."""
    examples = (Example(encode(pair.source), encode(pair.target)) for pair in pairs)
    fitting = []
    for example in examples:
        shorter, longer = sorted(map(len, example))
        longest = min(config.max_sentence_tokens, config.max_length_ratio * shorter + 4)
        if shorter > 0 and longer <= longest:
            fitting.append(example)
    return fitting


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


def cut_batches(examples: Sequence[Example], max_tokens: int) -> Iterator[list[Example]]:
    """Yield consecutive runs of examples whose padded size, rows x longest side, stays within `max_tokens`."""
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
    """Training batches; epoch e of a seed is the same sequence on every machine and after every resume.

    Where pieces are sampled, a resumed epoch has the same pairs in other pieces (`sampling_encoder`).
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizer: Tokenizer,
        config: BatchConfig,
        augmentation: AugmentationConfig,
        seed: int,
    ) -> None:
        """Use these pairs; each epoch changes some of them and leaves out those that do not fit.

        Raises:
            ValueError: there are no pairs, or none of them fits.
        """
        if not any(encode_pairs([pair], config, tokenizer.encode) for pair in pairs):
            raise ValueError(
                f"no pair to train on: of {len(pairs):,} none has two sides of at most {config.max_sentence_tokens} "
                f"tokens that differ in length by less than a factor of {config.max_length_ratio}"
            )
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._config = config
        self._augmentation = augmentation
        self._seed = seed

    def epoch(self, number: int, skip: int = 0) -> Iterator[TrainingBatch]:
        """Yield the batches of epoch `number`, without padding the first `skip`, which are left out."""
        rng = random.Random(self._seed * 1_000_003 + number)
        shuffled = rng.sample(self._pairs, len(self._pairs))
        changed = list(augment(shuffled, self._augmentation, rng.randrange(2**32)))
        share = self._augmentation.sample_pieces
        encode: Encode = self._tokenizer.encode
        if share:
            encode = sampling_encoder(self._tokenizer, share, rng.randrange(2**32))
        runs = self._bucket(encode_pairs(changed, self._config, encode), rng)
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
