"""A corpus of what a teacher says: the new pairs only, found as the reference finds them."""

import pytest
import torch
from typer.testing import CliRunner

import model.tools.distil
from model.config import ModelConfig, NormPlacement
from model.corpus import read_corpus
from model.recipe import CorpusConfig, Languages
from model.search import greedy_search
from model.tools.distil import quick_greedy_search
from model.transformer import Transformer
from tests.conftest import ENGLISH
from tests.fakes.tiny_model import write_tiny_checkpoint
from tests.fakes.tiny_run import data

__all__ = ["data"]


@pytest.mark.parametrize("placement", NormPlacement)
def test_the_quick_search_finds_what_the_slow_one_finds(placement):
    shape = ModelConfig(vocab_size=60, d_model=16, d_ff=32, num_heads=2, norm_placement=placement)
    model = Transformer(shape).initialize(3).eval()
    random = torch.Generator().manual_seed(5)
    source, lengths = torch.randint(4, 60, (7, 9), generator=random), torch.tensor([9, 1, 4, 9, 6, 2, 5])

    found = quick_greedy_search(model, source, lengths, 20)

    assert found == greedy_search(model, source, lengths, 20)
    assert len({tuple(tokens) for tokens in found}) > 1


def test_the_command_writes_what_the_teacher_says_to_each_sentence(data, tmp_path):
    teacher = write_tiny_checkpoint(tmp_path / "teacher")
    out = tmp_path / "train" / "said"

    result = CliRunner().invoke(
        model.tools.distil.app,
        [
            str(teacher),
            "--recipe",
            str(data / "recipe.toml"),
            "--data",
            str(data),
            "--out",
            str(out),
            "--device",
            "cpu",
        ],
    )

    assert result.exit_code == 0, result.output
    pairs = read_corpus(tmp_path, CorpusConfig(name="said", verbatim=True), Languages(source="en", target="de"), 1)
    assert 0 < len(pairs) <= len(set(ENGLISH))
    assert {pair.source for pair in pairs} <= set(ENGLISH)
