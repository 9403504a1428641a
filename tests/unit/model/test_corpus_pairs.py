"""From files to pairs: reading, cleaning, samples, and what is held out."""

import gzip
from pathlib import Path

import pytest

from model.corpus import Pair, modernize_german, read_corpus, read_dev_set, read_lines, split_held_out
from model.recipe import CorpusConfig, Languages

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
