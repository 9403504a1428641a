"""From pairs to batches: the budget, sentinels, and the order that a resumed run repeats."""

import pytest

from model.config import BOS_ID, EOS_ID
from model.corpus import Pair
from model.data import EpochBatches, Example, collate, cut_batches, encode_pairs
from model.recipe import AugmentationConfig, BatchConfig, Languages
from model.tokenizer import Tokenizer
from model.tools.extend_vocabulary import extend_pieces
from tests.conftest import ENGLISH, GERMAN

EN_DE = Languages(source="en", target="de")


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer_path)


def test_pairs_too_long_or_too_unequal_are_left_out(tokenizer):
    config = BatchConfig(max_sentence_tokens=60, max_length_ratio=2.0)
    good, long = Pair(ENGLISH[0], GERMAN[0]), Pair(ENGLISH[0] * 9, GERMAN[0] * 9)
    unequal, empty = Pair("bread", GERMAN[5]), Pair(" ", "Brot")

    assert len(encode_pairs([good, long, unequal, empty], config, tokenizer.encode)) == 1


def test_collate_shifts_the_target_and_pads_on_the_right():
    batch = collate([Example([5, EOS_ID], [7, 8, EOS_ID]), Example([5, 6, EOS_ID], [9, EOS_ID])])

    assert batch.source.tolist() == [[5, EOS_ID, 0], [5, 6, EOS_ID]]
    assert batch.source_lengths.tolist() == [2, 3]
    assert batch.target_inputs.tolist() == [[BOS_ID, 7, 8], [BOS_ID, 9, 0]]
    assert batch.target_outputs.tolist() == [[7, 8, EOS_ID], [9, EOS_ID, 0]]


def test_batches_stay_within_the_budget_and_lose_nothing():
    examples = [Example([4] * length, [4] * 2) for length in (3, 9, 1, 50, 7, 7, 2, 10)]

    runs = list(cut_batches(examples, 20))

    assert all(len(run) == 1 or len(run) * max(example.num_tokens for example in run) <= 20 for run in runs)
    assert [example for run in runs for example in run] == examples


def test_batches_hold_sentinels_and_generated_pairs(tmp_path, tiny_tokenizer_path):
    extend_pieces(tiny_tokenizer_path, tmp_path / "extended.spm")
    extended = Tokenizer.load(tmp_path / "extended.spm")
    augmentation = AugmentationConfig(sentinels=1.0, templates=1.0)
    pairs = [Pair(f"I saw Anna {n} times.", f"Ich sah Anna {n} Mal.") for n in range(50)]
    batches = EpochBatches(pairs, extended, BatchConfig(), augmentation, seed=1, languages=EN_DE)

    rows = [row for batch in batches.epoch(0) for row in batch.source.tolist()]

    assert len(rows) > 90
    assert sum(not set(extended.sentinel_ids).isdisjoint(row) for row in rows) >= 50
