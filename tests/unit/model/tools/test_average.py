"""The mean of several models: their weights, and what keeps models from having one."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import model.tools.average
from model.checkpoint import Checkpoint, CheckpointMeta, load_checkpoint, save_checkpoint
from model.config import ModelConfig
from model.tools.average import average
from model.transformer import Transformer

META = CheckpointMeta(name="tiny", source_language="en", target_language="de", update=7, scores={"dev_loss": 2.0})


@pytest.fixture
def checkpoints(tiny_tokenizer_path) -> list[Checkpoint]:
    config = ModelConfig(
        vocab_size=120, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, max_positions=32
    )
    return [
        Checkpoint(
            config=config,
            meta=META,
            weights=dict(Transformer(config, 0.0).initialize(seed).state_dict()),
            tokenizer_path=tiny_tokenizer_path,
        )
        for seed in (1, 2, 3)
    ]


def test_every_weight_is_the_mean_of_that_weight(checkpoints):
    found = average(checkpoints)

    for name, tensor in found.weights.items():
        expected = torch.stack([checkpoint.weights[name] for checkpoint in checkpoints]).double().mean(0).float()
        assert torch.equal(tensor, expected)
    assert found.meta == replace(META, scores={})  # those were another model's


def test_one_model_has_no_mean(checkpoints):
    with pytest.raises(ValueError, match="1 model to average, at least 2"):
        average(checkpoints[:1])


def test_models_of_another_shape_direction_or_tokenizer_are_refused(checkpoints, tmp_path):
    first = checkpoints[0]
    (tmp_path / "other.spm").write_bytes(b"another one")
    wider = replace(first, config=replace(first.config, d_ff=64))
    reverse = replace(first, meta=replace(META, source_language="de", target_language="en"))
    foreign = replace(first, tokenizer_path=tmp_path / "other.spm")

    for other, words in ((wider, "d_ff=64"), (reverse, "from de to en"), (foreign, r"other\.spm")):
        with pytest.raises(ValueError, match=words):
            average([first, other])


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(
        model.tools.average.app, [str(argument) for argument in arguments], env={"COLUMNS": "300", "TERM": "dumb"}
    )
    return result.exit_code, result.output


def test_command_writes_a_checkpoint_and_never_over_anything(checkpoints, tmp_path):
    for number, checkpoint in enumerate(checkpoints[:2]):
        save_checkpoint(tmp_path / str(number), checkpoint)
    arguments = tmp_path / "0", tmp_path / "1", "--out", tmp_path / "mean"

    assert run(*arguments)[0] == 0
    found = load_checkpoint(tmp_path / "mean")
    assert torch.equal(found.weights["embedding.weight"], average(checkpoints[:2]).weights["embedding.weight"])

    code, printed = run(*arguments)
    assert code == 2
    assert "exists already" in printed


def test_command_names_what_is_no_checkpoint(tmp_path):
    code, printed = run(tmp_path, tmp_path, "--out", tmp_path / "mean")

    assert code == 2
    assert "is no checkpoint" in printed
