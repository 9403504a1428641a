"""Models in Marian's own format: what is refused, each in one line with the place, and what lies beside the weights."""

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from export.importers.foreign import ForeignModelError, ImportOptions
from export.importers.marian_arrays import NpzFile
from export.importers.marian_npz import SETTINGS_NAME, read_marian_model
from export.source import ExportSource
from model.config import StopRule
from model.manifest import DecodingDefaults
from model.tokenizer import load_tokenizer
from tests.parity.ctranslate2_model import pieces
from tests.parity.marian_npz_model import marian_config, settings_of, write_marian_npz

OPTIONS = ImportOptions(source_language="en", target_language="de")
CONFIG = marian_config()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    write_marian_npz(tmp_path / "model", CONFIG)
    return tmp_path / "model"


def read(directory: Path, options: ImportOptions = OPTIONS) -> ExportSource:
    (directory.parent / "scratch").mkdir(exist_ok=True)
    return read_marian_model(directory, options, directory.parent / "scratch")


def refusal(directory: Path) -> str:
    with pytest.raises(ForeignModelError) as refused:
        read(directory)
    assert "\n" not in str(refused.value)
    assert str(directory) in str(refused.value)
    return str(refused.value)


def change(path: Path, **arrays: Any) -> None:
    """Replace arrays; None: leave them out."""
    with np.load(path) as file:
        kept = {**file, **arrays}
    np.savez(path, **{name: array for name, array in kept.items() if array is not None})


def configure(directory: Path, **options: Any) -> None:
    path = directory / "decoder.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **options}))


def test_the_search_is_marians_with_the_options_of_its_decoder(directory: Path) -> None:
    plain = read(directory)
    configure(directory, **{"allow-unk": True, "beam-size": 3})
    changed = read(directory)

    assert plain.decoding == DecodingDefaults(beam_size=6, length_penalty=0.6, stop_rule=StopRule.MARIAN)
    assert plain.config.suppressed_ids == (1, CONFIG.vocab_size)  # <unk>, and the start
    assert plain.config.suppressed_keep_mass
    assert changed.decoding.beam_size == 3
    assert changed.config.suppressed_ids == (CONFIG.vocab_size,)


def test_a_sentencepiece_vocabulary_has_the_ids_and_cuts_the_text(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    names = pieces(tiny_tokenizer_path)
    write_marian_npz(tmp_path, marian_config(len(names)))
    (tmp_path / "vocab.spm").write_bytes(tiny_tokenizer_path.read_bytes())
    source = read(tmp_path, replace(OPTIONS, vocabularies=(tmp_path / "vocab.spm",)))

    tokenizer = load_tokenizer(source.tokenizer_path, source.tokenizer)

    found = tokenizer.encode("The dog plays in the park.")
    assert [names[token] for token in found][-1] == "</s>"
    assert tokenizer.decode(found) == "The dog plays in the park."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "s2s"}, "type is 's2s', only transformer is supported"),
        ({"transformer-decoder-autoreg": "average-attention"}, "only self-attention or rnn is supported"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "dec-cell is 'gru', only ssru is supported"),
        ({"transformer-decoder-autoreg": "rnn"}, "has no array 'decoder_l1_rnn_ln_scale_pre'"),
        ({"transformer-ffn-activation": "gelu"}, "'gelu', supported are relu, swish"),
        ({"transformer-postprocess": "dhn"}, "-postprocess 'hn'"),
        ({"transformer-train-position-embeddings": True}, "only false is supported"),
        ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers is ['1', '1']"),
        ({"dim-emb": "many"}, "dim-emb is 'many', it must be a number"),
        ({"dim-emb": 8}, "Wemb has shape (60, 16), (60, 8) is needed"),
        ({"enc-depth": 3}, "has no array 'encoder_l3_ffn_ffn_ln_scale_pre'"),
        ({"dec-depth": 1}, "arrays that are not understood: decoder_l2_context_Wk"),
        ({"transformer-heads": 3}, "multiple of num_heads"),
        ({"enc-depth": 0}, "num_encoder_layers is 0"),
    ],
)
def test_settings_that_are_not_understood_are_refused(directory: Path, settings: Any, message: str) -> None:
    change(directory / "model.npz", **{SETTINGS_NAME: settings_of(CONFIG, **settings)})

    assert message in refusal(directory)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"word-penalty": 0.5}, "word-penalty is 0.5, only 0 is supported"),
        ({"shortlist": ["lex.s2t.bin", "false"]}, "does not have the shortlist 'lex.s2t.bin'"),
        ({"normalize": "x"}, "normalize is 'x'"),
        ({"beam-size": 65}, "beam_size is 65"),
        ({"models": ["a.npz", "b.npz"]}, "2 models (a.npz, b.npz): one is needed"),
        ({"models": ["../../model.npz", 1]}, "2 models (model.npz, 1)"),
        ({"vocabs": ["/etc/passwd"]}, "give --vocabulary FILE"),
    ],
)
def test_options_of_the_decoder_that_do_not_fit_are_refused(directory: Path, options: Any, message: str) -> None:
    configure(directory, **options)

    assert message in refusal(directory)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 0\nb: 2\n", "the ids of 2 tokens are not 0 to 1"),
        ("a: 0\nb: !!python/name:os.system 1\n", "no token '<unk>'"),
        ("[" * 5_000, "no settings in YAML"),
        ("a: &a [x]\nb: [*a, *a]\n", "it must be text"),
    ],
)
def test_vocabularies_that_are_none_are_refused(directory: Path, text: str, message: str) -> None:
    (directory / "vocab0.yml").write_text(text)

    assert message in refusal(directory)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def test_pickled_arrays_are_refused_and_run_nothing(directory: Path) -> None:
    change(directory / "model.npz", Wemb=np.array([Bomb()], object))

    assert "Wemb is damaged, or holds more than numbers" in refusal(directory)
    assert not Path("exploded").exists()


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (-4, -4), (4,), (0, 4), (True, 16)])
def test_a_header_that_claims_another_size_is_refused(directory: Path, shape: tuple[int, ...]) -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(directory / "model.npz", "a") as archive:
        archive.writestr("claim.npy", file.getvalue() + bytes(15))

    with pytest.raises(ForeignModelError, match="claim is damaged"):
        NpzFile(directory / "model.npz").array("claim", shape)
