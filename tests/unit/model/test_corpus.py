"""Reading, cleaning and augmenting parallel text."""

import gzip
from pathlib import Path

import pytest

from model.data import Pair, augment, modernize_german, read_corpus, read_dev_set, read_lines
from model.recipe import AugmentationConfig, CorpusConfig, Languages

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
    ],
)
def test_old_spelling_becomes_new(old, new):
    assert modernize_german(old) == new


@pytest.mark.parametrize(
    "word",
    [
        "Maß",
        "Maße",
        "groß",
        "Straße",
        "ließ",
        "heißt",
        "Spaß",
        "Fuß",
        "müßig",
        "saß",
        "Gruß",
        "Muße",
        "Mußestunden",
        "Litfaßsäule",
    ],
)
def test_long_vowels_keep_their_sharp_s(word):
    assert modernize_german(word) == word


def test_markup_copies_and_lines_without_letters_are_left_out(tmp_path):
    pairs = [
        ("Good morning.", "Guten Morgen."),
        ("<b>bold</b>", "<b>fett</b>"),
        ("123", "123"),
        ("This was never translated at all.", "This was never translated at all."),
        ("OK", "OK"),
    ]
    write_corpus(tmp_path, "small", pairs)

    found = read_corpus(tmp_path, CorpusConfig(name="small"), EN_DE, seed=1)

    assert found == [Pair("Good morning.", "Guten Morgen."), Pair("OK", "OK")]


def test_a_verbatim_corpus_keeps_every_line_as_it_stands(tmp_path):
    pairs = [("a < b", "a < b"), ("he must", "er muß"), ("", "leer")]
    write_corpus(tmp_path, "exact", pairs)

    found = read_corpus(tmp_path, CorpusConfig(name="exact", verbatim=True), EN_DE, seed=1)

    assert found == [Pair(*pair) for pair in pairs]


def test_a_name_with_a_slash_is_a_path_for_training_and_development(tmp_path):
    write_corpus(tmp_path, "small", [("one", "eins")])

    assert read_corpus(tmp_path, CorpusConfig(name="train/small/small"), EN_DE, seed=1) == [Pair("one", "eins")]
    assert read_dev_set(tmp_path, "train/small/small", EN_DE) == [Pair("one", "eins")]


def test_cap_takes_a_seeded_sample_and_repeat_multiplies(tmp_path):
    write_corpus(tmp_path, "many", [(f"word {n}", f"Wort {n}") for n in range(100)])
    config = CorpusConfig(name="many", max_pairs=10, repeat=2)

    one, two, other = (read_corpus(tmp_path, config, EN_DE, seed=seed) for seed in (1, 1, 2))

    assert one == two != other
    assert len(one) == 20
    assert len(set(one)) == 10


def test_sides_of_unequal_length_are_refused(tmp_path):
    write_corpus(tmp_path, "broken", [("one", "eins")])
    with gzip.open(tmp_path / "train/broken/broken.de.gz", "at", encoding="utf-8") as out:
        out.write("zwei\n")

    with pytest.raises(ValueError, match="1 source lines but 2 target lines"):
        read_corpus(tmp_path, CorpusConfig(name="broken"), EN_DE, seed=1)


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
    write_corpus(tmp_path, "broken", [("one", "eins")])
    (tmp_path / "train/broken/broken.de.gz").write_bytes(content)

    with pytest.raises(ValueError, match=rf"broken\.de\.gz cannot be read: .*{why}"):
        read_corpus(tmp_path, CorpusConfig(name="broken"), EN_DE, seed=1)


def test_only_line_feeds_end_lines(tmp_path):
    (tmp_path / "text").write_bytes("one\rtwo\u2028three\r\nfour\n".encode())

    assert read_lines(tmp_path / "text") == ["one\rtwo\u2028three", "four"]


def test_an_empty_development_set_is_refused(tmp_path):
    (tmp_path / "dev").mkdir()
    for language in ("en", "de"):
        (tmp_path / f"dev/none.{language}.gz").write_bytes(gzip.compress(b""))

    with pytest.raises(ValueError, match="development set none has no sentences"):
        read_dev_set(tmp_path, "none", EN_DE)


def test_missing_corpus_names_path_and_layout(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.en\.gz does not exist; expected DATA/train"):
        read_corpus(tmp_path, CorpusConfig(name="none"), EN_DE, seed=1)


def test_augmentation_changes_its_share_and_repeats():
    pairs = [Pair(f"Hello {n}.", f"Hallo {n}.") for n in range(1_000)]
    config = AugmentationConfig(concatenate=0.3, lowercase_source=0.2, drop_final_punctuation=0.1)

    changed = list(augment(pairs, config, seed=5))

    assert changed == list(augment(pairs, config, seed=5))
    assert sum(pair.target.count("Hallo") == 2 for pair in changed) == pytest.approx(300, abs=60)
    assert sum(pair.source[0] == "h" for pair in changed) == pytest.approx(200, abs=50)
    assert sum(not pair.target.endswith(".") for pair in changed) == pytest.approx(100, abs=40)


def test_no_augmentation_changes_nothing():
    pairs = [Pair("One.", "Eins."), Pair("Two.", "Zwei.")]

    assert list(augment(pairs, AugmentationConfig(), seed=1)) == pairs
