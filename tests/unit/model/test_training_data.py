"""From files to batches: reading, cleaning, what is held out and what is changed, and the budget of a batch."""

import gzip
import itertools
from pathlib import Path

import pytest

from model.augment import augment, shared_spans
from model.config import BOS_ID, EOS_ID
from model.corpus import Pair, modernize_german, read_corpus, read_dev_set, read_lines, split_held_out
from model.data import EpochBatches, Example, collate, cut_batches, encode_pairs
from model.pieces import SENTINELS
from model.recipe import AugmentationConfig, BatchConfig, CorpusConfig, Languages
from model.tokenizer import Tokenizer
from model.tools.extend_vocabulary import extend_pieces
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


def test_the_same_pairs_are_held_out_in_either_direction_and_none_shares_a_side_with_training():
    pairs = [Pair(f"word {n % 500}", f"Wort {n}") for n in range(1_000)]

    training, held_out = split_held_out(pairs, 0.1)
    _, backwards = split_held_out([Pair(pair.target, pair.source) for pair in reversed(pairs)], 0.1)

    assert len(held_out) == pytest.approx(100, abs=30)
    assert {pair.source for pair in training}.isdisjoint(pair.source for pair in held_out)
    assert {Pair(pair.target, pair.source) for pair in backwards} == set(held_out)
    assert split_held_out(pairs, 0.0) == (pairs, [])


PAIR = Pair("Anna paid 20 euros at https://a.example/x.", "Anna zahlte 20 Euro auf https://a.example/x.")


def test_each_change_has_its_share_and_repeats():
    pairs = [Pair(f"Hello {n}.", f"Hallo {n}.") for n in range(1_000)]
    config = AugmentationConfig(concatenate=0.3, lowercase_source=0.2, drop_final_punctuation=0.1)

    changed = list(augment(pairs, config, seed=5))

    assert changed == list(augment(pairs, config, seed=5))
    assert sum(pair.target.count("Hallo") > 1 for pair in changed) == pytest.approx(300, abs=60)
    assert {pair.target.count("Hallo") for pair in changed} == {1, 2, 3, 4}
    assert sum(pair.source[0] == "h" for pair in changed) == pytest.approx(200, abs=50)
    assert sum(not pair.target.endswith(".") for pair in changed) == pytest.approx(100, abs=40)
    assert list(augment(pairs, AugmentationConfig(), seed=1)) == pairs


@pytest.mark.parametrize(
    ("source", "target", "spans"),
    [
        (*PAIR, ["Anna", "20", "https://a.example/x"]),
        ("It costs 4.50 for Ann.", "Es kostet 4,50 für Anne.", []),
        ("Yesterday Tom Miller left.", "Gestern ging Tom Miller.", ["Tom", "Miller"]),
        ("Tom and Tom met.", "Tom traf Tom.", []),
        ("Hi {name}, mail a_b@c.de (%1$s)", "Hallo {name}, Mail an a_b@c.de (%1$s)", ["{name}", "a_b@c.de", "%1$s"]),
        ("Press <b>OK</b> in `x y`.", "<b>OK</b> in `x y` drücken.", ["<b>", "OK", "</b>", "`x y`"]),
    ],
)
def test_shared_spans_stand_once_on_both_sides(source, target, spans):
    assert shared_spans(Pair(source, target)) == spans


def test_spans_become_the_same_sentinels_on_both_sides():
    changed = augment([PAIR] * 50, AugmentationConfig(sentinels=1.0), seed=1)

    for source, target in changed:
        in_source, in_target = ([one for one in side if one in SENTINELS] for side in (source, target))
        assert in_source == in_target
        assert len(set(in_source)) == len(in_source)


def test_every_option_changes_something():
    pairs = [PAIR, *(Pair(f"He has {n} friends.", f"Er hat {n} Freunde.") for n in range(20))]
    names = set(AugmentationConfig.__dataclass_fields__) - {"sample_pieces", "templates"}  # those of `EpochBatches`

    following = dict(itertools.pairwise(pairs))
    for name in names:
        assert list(augment(pairs, AugmentationConfig(**{name: 1.0}), 1, following)) != pairs, name


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
