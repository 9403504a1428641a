"""From files to batches: reading, cleaning, augmenting, the budget, and the order a resumed run repeats."""

import gzip
import itertools
from pathlib import Path

import pytest
import torch

from model.config import BOS_ID, EOS_ID
from model.data import (
    EpochBatches,
    Example,
    Pair,
    augment,
    collate,
    cut_batches,
    encode_pairs,
    modernize_german,
    read_corpus,
    read_dev_set,
    read_lines,
    sampling_encoder,
)
from model.recipe import AugmentationConfig, BatchConfig, CorpusConfig, Languages
from model.tokenizer import Tokenizer
from tests.conftest import ENGLISH, GERMAN

EN_DE = Languages(source="en", target="de")


def write_corpus(data: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    folder = data / "train" / name
    folder.mkdir(parents=True)
    for side, language in enumerate(("en", "de")):
        with gzip.open(folder / f"{name}.{language}.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{pair[side]}\n" for pair in pairs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Ich weiß, daß er muß.", "Ich weiß, dass er muss."),
        ("Der Ausschuß faßt den Beschluß.", "Der Ausschuss fasst den Beschluss."),
        ("ein bißchen bewußt, gewiß", "ein bisschen bewusst, gewiss"),
        ("Mißbrauch in Rußland", "Missbrauch in Russland"),
        ("Er mußte das Faß holen.", "Er musste das Fass holen."),
        *((word, word) for word in ("Maß", "groß", "Straße", "ließ", "heißt", "Spaß", "Fuß", "müßig", "saß", "Gruß")),
        *((word, word) for word in ("Mußestunden", "Litfaßsäule")),
    ],
)
def test_old_spelling_becomes_new_and_long_vowels_keep_their_sharp_s(old, new):
    assert modernize_german(old) == new


def test_markup_copies_and_lines_without_letters_are_left_out_unless_verbatim(tmp_path):
    good = [("Good morning.", "Guten Morgen."), ("OK", "OK")]
    bad = [("<b>bold</b>", "<b>fett</b>"), ("123", "123"), ("This was never translated.", "This was never translated.")]
    write_corpus(tmp_path, "small", [*good, *bad])

    cleaned, whole = (
        read_corpus(tmp_path, CorpusConfig(name="small", verbatim=verbatim), EN_DE, seed=1)
        for verbatim in (False, True)
    )

    assert (cleaned, whole) == (good, [*good, *bad])


def test_cap_takes_a_seeded_sample_and_repeat_multiplies(tmp_path):
    write_corpus(tmp_path, "many", [(f"word {n}", f"Wort {n}") for n in range(100)])
    config = CorpusConfig(name="many", max_pairs=10, repeat=2)

    one, two, other = (read_corpus(tmp_path, config, EN_DE, seed=seed) for seed in (1, 1, 2))

    assert one == two != other
    assert (len(one), len(set(one))) == (20, 10)


def test_what_is_missing_unequal_or_empty_is_refused(tmp_path):
    write_corpus(tmp_path, "broken", [("one", "eins")])
    (tmp_path / "train/broken/broken.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    write_corpus(tmp_path, "empty", [])

    with pytest.raises(ValueError, match=r"has 1 lines, .*broken\.de\.gz has 2: they must be aligned"):
        read_corpus(tmp_path, CorpusConfig(name="broken"), EN_DE, seed=1)
    with pytest.raises(ValueError, match="development set train/empty/empty has no sentences"):
        read_dev_set(tmp_path, "train/empty/empty", EN_DE)
    with pytest.raises(FileNotFoundError, match=r"none\.en\.gz does not exist; expected DATA/train"):
        read_corpus(tmp_path, CorpusConfig(name="none"), EN_DE, seed=1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (gzip.compress(b"a line\n" * 99)[:-9], "Compressed file ended"),
        (b"a line\n", "Not a gzipped file"),
        (gzip.compress(b"")[:10] + b"\x07" * 9, "invalid block type"),
        (gzip.compress("gr\xfcn\n".encode("latin-1")), "codec can't decode"),
    ],
    ids=["cut off", "not compressed", "damaged", "not UTF-8"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, why):
    (tmp_path / "broken.gz").write_bytes(content)

    with pytest.raises(ValueError, match=rf"broken\.gz cannot be read: .*{why}"):
        read_lines(tmp_path / "broken.gz")


def test_augmentation_changes_its_share_and_repeats():
    pairs = [Pair(f"Hello {n}.", f"Hallo {n}.") for n in range(1_000)]
    config = AugmentationConfig(concatenate=0.3, lowercase_source=0.2, drop_final_punctuation=0.1)

    changed = list(augment(pairs, config, seed=5))

    assert changed == list(augment(pairs, config, seed=5))
    assert sum(pair.target.count("Hallo") == 2 for pair in changed) == pytest.approx(300, abs=60)
    assert sum(pair.source[0] == "h" for pair in changed) == pytest.approx(200, abs=50)
    assert sum(not pair.target.endswith(".") for pair in changed) == pytest.approx(100, abs=40)
    assert list(augment(pairs, AugmentationConfig(), seed=1)) == pairs


class PieceTokenizer:
    """A tokenizer whose ids tell whether a text's pieces were drawn: sentencepiece's draws differ by process."""

    def seed(self, seed: int) -> None:
        pass

    def encode(self, text: str) -> list[int]:
        return [0]

    def sample(self, text: str, alpha: float) -> list[int]:
        return [1]


def test_a_share_of_the_texts_is_sampled():
    """Which texts these are is Python's own random stream, which is the same on every machine."""
    first, again, other = (
        [encode("text")[0] for _ in range(1_000)]
        for encode in (sampling_encoder(PieceTokenizer(), 0.25, seed) for seed in (1, 1, 2))  # type: ignore[arg-type]
    )

    assert first == again != other
    assert sum(first) == pytest.approx(250, abs=40)


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


def epoch_batches(tokenizer, seed=1) -> EpochBatches:
    pairs = [
        Pair(f"{english} {again}", f"{german} {repeated}")
        for (english, german), (again, repeated) in itertools.product(zip(ENGLISH, GERMAN, strict=True), repeat=2)
    ]
    return EpochBatches(pairs, tokenizer, BatchConfig(max_tokens=200), AugmentationConfig(), seed)


def test_a_resumed_epoch_starts_at_the_next_batch(tokenizer):
    whole = list(epoch_batches(tokenizer).epoch(3))
    resumed = list(epoch_batches(tokenizer).epoch(3, skip=4))

    for ours, expected in zip(resumed, whole[4:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
