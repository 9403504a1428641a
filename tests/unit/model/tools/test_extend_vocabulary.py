"""A model with more pieces: the old ones stay, every text has tokens, and no text has a sentinel."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import model.tools.extend_vocabulary
from export.source import ExportSource
from model.checkpoint import Checkpoint, CheckpointMeta, load_checkpoint, save_checkpoint
from model.config import UNK_ID
from model.tokenizer import Tokenizer, load_tokenizer
from model.tools.extend_vocabulary import extend_pieces
from model.transformer import Transformer
from tests.conftest import ENGLISH
from tests.fakes.tiny_model import tiny_config


@pytest.fixture(scope="module")
def extended(tiny_tokenizer_path, tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("extended") / "shared.spm"
    extend_pieces(tiny_tokenizer_path, path)
    return Tokenizer.load(path)


def test_old_pieces_keep_their_ids_and_the_size_is_a_multiple_of_64(extended, tiny_tokenizer_path):
    old = Tokenizer.load(tiny_tokenizer_path)

    assert extended.vocab_size % 64 == 0
    assert extended.pieces(range(old.vocab_size)) == old.pieces(range(old.vocab_size))
    assert [extended.encode(text) for text in ENGLISH] == [old.encode(text) for text in ENGLISH]
    assert not old.sentinels


@pytest.mark.parametrize("text", ["$49.90 <b>x</b> {name} a_b C:\\dir |", "#1 [x] ~`^ @ & = €5"])
def test_what_had_no_piece_has_one_and_counts_as_lacking(extended, text):
    assert extended.decode(extended.encode(text)) == text
    assert extended.read_back(text) is None


@given(st.text())
def test_no_text_is_unknown_or_has_a_sentinel(extended, text):
    ids = extended.encode(text)

    assert UNK_ID not in ids
    assert set(extended.sentinel_ids).isdisjoint(ids)


def test_a_model_is_extended_once(tiny_tokenizer_path, tmp_path):
    config = tiny_config(vocab_size=120)
    weights = dict(Transformer(config).initialize(1).state_dict())
    meta = CheckpointMeta(name="tiny", source_language="en", target_language="de")
    old = Checkpoint(config=config, meta=meta, weights=weights, tokenizer_path=tiny_tokenizer_path)
    save_checkpoint(tmp_path / "old", old)

    def extend(name: str, out: str):
        arguments = [str(tmp_path / name), "--out", str(tmp_path / out)]
        return CliRunner().invoke(model.tools.extend_vocabulary.app, arguments)

    done, again = extend("old", "new"), extend("new", "newer")

    assert done.exit_code == 0, done.output
    found = load_checkpoint(tmp_path / "new")
    assert found.config.vocab_size == found.tokenizer().vocab_size == len(found.weights["embedding.weight"])
    assert found.model().config == found.config
    (tmp_path / "bundle").mkdir()
    files = ExportSource.load(tmp_path / "new").copy_tokenizer(tmp_path / "bundle")
    assert load_tokenizer(tmp_path / "bundle", files).sentinel_ids == files.sentinels != ()  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"the manifest says that the sentinels are \[\], those of shared\.spm are \["):
        load_tokenizer(tmp_path / "bundle", replace(files, sentinels=()))
    assert again.exit_code == 2
    assert "has bytes or sentinels already" in " ".join(again.output.split())
