"""Loss, translations and scores of a model, whatever the lengths of its texts."""

import pytest
from torch import Tensor
from typer.testing import CliRunner

import model.evaluate
from model.config import ModelConfig
from model.corpus import Pair
from model.evaluate import mean_nll, translate_greedily
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from tests.conftest import ENGLISH, GERMAN
from tests.fakes.tiny_model import write_tiny_checkpoint
from tests.fakes.tiny_run import data

__all__ = ["data"]


@pytest.fixture
def tokenizer(tiny_tokenizer_path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer_path)


def small_model(max_positions: int) -> Transformer:
    shape = ModelConfig(vocab_size=120, d_model=16, d_ff=16, num_heads=2, max_positions=max_positions)
    return Transformer(shape).initialize(1).eval()


def test_loss_leaves_out_only_pairs_that_the_model_has_no_positions_for(tokenizer):
    short, long, unequal = Pair("A red", "Ein roter"), Pair(" ".join(ENGLISH), " ".join(GERMAN)), Pair("A", GERMAN[0])

    few, many = small_model(max_positions=12), small_model(max_positions=512)

    assert mean_nll(few, [short, long], tokenizer) == mean_nll(few, [short], tokenizer)
    assert mean_nll(many, [short, long], tokenizer) != mean_nll(many, [short], tokenizer)
    assert mean_nll(many, [unequal], tokenizer) > 0


def test_translations_keep_the_order_of_the_texts(tokenizer, monkeypatch):
    def copy(_: object, source: Tensor, lengths: Tensor, __: int) -> list[list[int]]:
        return [row[:length].tolist() for row, length in zip(source, lengths, strict=True)]

    monkeypatch.setattr(model.evaluate, "greedy_search", copy)
    texts = [ENGLISH[0], "", ENGLISH[1], *ENGLISH * 7]

    assert translate_greedily(small_model(512), texts, tokenizer) == texts


def test_the_command_prints_scores_with_signatures_once_it_has_read_all_sets(data, tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "tiny")

    def run(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(model.evaluate.app, [str(checkpoint), "--data", str(data), *options])
        return result.exit_code, " ".join(result.output.replace("│", "").split())

    code, said = run("--set", "dev/own", "--bleu-tokenizer", "none", "--limit", "2")
    assert code == 0, said
    assert all(word in said for word in ("dev/own", "nrefs:1|case:mixed", "tok:none"))
    code, said = run("--set", "own", "--set", "other")
    assert code == 2
    assert "other.en.gz does not exist" in said
