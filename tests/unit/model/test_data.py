"""Batches: budget, padding, coverage of the epoch, and the order a resumed run repeats."""

import itertools

import pytest
import torch

from model.config import BOS_ID, EOS_ID
from model.data import EpochBatches, Example, Pair, collate, cut_batches, encode_pairs
from model.recipe import AugmentationConfig, BatchConfig
from model.tokenizer import Tokenizer
from tests.conftest import ENGLISH, GERMAN


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer_path)


def epoch_batches(tokenizer, seed=1, max_tokens=200) -> EpochBatches:
    pairs = [
        Pair(f"{english} {again}", f"{german} {repeated}")
        for (english, german), (again, repeated) in itertools.product(zip(ENGLISH, GERMAN, strict=True), repeat=2)
    ]
    return EpochBatches(pairs, tokenizer, BatchConfig(max_tokens=max_tokens), AugmentationConfig(), seed)


def rows(batch) -> list[tuple[int, ...]]:
    return [tuple(row.tolist()) for row in batch.source]


def test_collate_shifts_the_target_and_pads_on_the_right():
    batch = collate([Example([5, EOS_ID], [7, 8, EOS_ID]), Example([5, 6, EOS_ID], [9, EOS_ID])])

    assert batch.source.tolist() == [[5, EOS_ID, 0], [5, 6, EOS_ID]]
    assert batch.source_lengths.tolist() == [2, 3]
    assert batch.target_inputs.tolist() == [[BOS_ID, 7, 8], [BOS_ID, 9, 0]]
    assert batch.target_outputs.tolist() == [[7, 8, EOS_ID], [9, EOS_ID, 0]]


def test_batches_stay_within_the_budget_and_lose_nothing():
    examples = [Example([4] * length, [4] * 2) for length in (3, 9, 1, 7, 7, 2, 10)]

    runs = list(cut_batches(examples, 20))

    assert all(len(run) * max(example.num_tokens for example in run) <= 20 for run in runs)
    assert [example for run in runs for example in run] == examples


def test_a_sentence_longer_than_the_budget_has_a_batch_of_its_own():
    assert [len(run) for run in cut_batches([Example([4] * 50, [4]), Example([4], [4])], 20)] == [1, 1]


def test_pairs_too_long_or_too_unequal_are_left_out(tokenizer):
    config = BatchConfig(max_sentence_tokens=60, max_length_ratio=2.0)
    good, long = Pair(ENGLISH[0], GERMAN[0]), Pair(ENGLISH[0] * 9, GERMAN[0] * 9)
    unequal, empty = Pair("bread", GERMAN[5]), Pair(" ", "Brot")

    assert len(encode_pairs([good, long, unequal, empty], tokenizer, config)) == 1


def test_an_epoch_holds_every_pair_once(tokenizer):
    seen = [row for batch in epoch_batches(tokenizer).epoch(0) for row in rows(batch)]

    assert len(seen) == 100


def test_batches_hold_sentences_of_like_length(tokenizer):
    padding = [int((batch.source == 0).sum()) / batch.source.numel() for batch in epoch_batches(tokenizer).epoch(0)]

    assert sum(padding) / len(padding) < 0.12


def test_epochs_differ_and_repeat(tokenizer):
    def order(seed: int, number: int) -> list[list[tuple[int, ...]]]:
        return [rows(batch) for batch in epoch_batches(tokenizer, seed).epoch(number)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_a_resumed_epoch_starts_at_the_next_batch(tokenizer):
    whole = list(epoch_batches(tokenizer).epoch(3))
    resumed = list(epoch_batches(tokenizer).epoch(3, skip=4))

    assert len(resumed) == len(whole) - 4
    for ours, expected in zip(resumed, whole[4:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


def sampled_epochs(tokenizer, share: float, epochs=(0,)) -> list[list[tuple[int, ...]]]:
    pairs = [Pair(*pair) for pair in zip(ENGLISH, GERMAN, strict=True)]
    augmentation = AugmentationConfig(sample_pieces=share)
    batches = EpochBatches(pairs, tokenizer, BatchConfig(), augmentation, seed=1)
    return [sorted(row for batch in batches.epoch(number) for row in rows(batch)) for number in epochs]


def test_sampled_pieces_differ_from_epoch_to_epoch_but_spell_the_same_texts(tokenizer):
    first, second = sampled_epochs(tokenizer, 1.0, epochs=(0, 1))

    assert first != second
    for epoch in (first, second):
        assert sorted(tokenizer.decode(row) for row in epoch) == sorted(ENGLISH)


def test_a_resumed_run_samples_the_same_pieces(tokenizer):
    assert sampled_epochs(tokenizer, 0.5, epochs=(3,)) == sampled_epochs(tokenizer, 0.5, epochs=(3,))


def test_a_share_of_the_texts_is_sampled(tokenizer):
    likeliest = {tuple(tokenizer.encode(text)) for text in ENGLISH}
    draws = [
        sum(tuple(token for token in row if token) in likeliest for row in epoch)
        for epoch in sampled_epochs(tokenizer, 0.5, epochs=range(40))
    ]

    assert 0.45 < sum(draws) / (40 * len(ENGLISH)) < 0.75  # a sampled segmentation may be the likeliest, too


@pytest.mark.parametrize("pairs", [[], [Pair("one two three " * 50, "eins")]], ids=["no pairs", "none that fits"])
def test_nothing_to_train_on_is_refused(tokenizer, pairs):
    with pytest.raises(
        ValueError, match=rf"no pair to train on: of {len(pairs)} none has two sides of at most 128 tokens"
    ):
        EpochBatches(pairs, tokenizer, BatchConfig(), AugmentationConfig(), 1)
