"""The mean of several models: their weights, and what keeps models from having one."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import model.tools.average
from model.checkpoint import Checkpoint, CheckpointMeta, load_checkpoint, save_checkpoint
from model.tools.average import average
from model.transformer import Transformer
from tests.fakes.tiny_model import tiny_config

META = CheckpointMeta(name="tiny", source_language="en", target_language="de", update=7, scores={"dev_loss": 2.0})


@pytest.fixture
def checkpoints(tiny_tokenizer_path) -> list[Checkpoint]:
    config = tiny_config(vocab_size=120)
    weights = [dict(Transformer(config).initialize(seed).state_dict()) for seed in (1, 2, 3)]
    return [Checkpoint(config=config, meta=META, weights=one, tokenizer_path=tiny_tokenizer_path) for one in weights]


def test_every_weight_is_the_mean_of_that_weight(checkpoints):
    found = average(checkpoints)

    for name, tensor in found.weights.items():
        expected = torch.stack([checkpoint.weights[name] for checkpoint in checkpoints]).double().mean(0).float()
        assert torch.equal(tensor, expected)
    assert found.meta == replace(META, scores={})  # those were another model's


def test_what_has_no_mean_is_refused(checkpoints, tmp_path):
    first = checkpoints[0]
    (tmp_path / "other.spm").write_bytes(b"another one")
    wider = replace(first, config=replace(first.config, d_ff=128))
    reverse = replace(first, meta=replace(META, source_language="de", target_language="en"))
    foreign = replace(first, tokenizer_path=tmp_path / "other.spm")

    for others, words in (
        ([], "1 model"),
        ([wider], "d_ff=128"),
        ([reverse], "from de to en"),
        ([foreign], "other.spm"),
    ):
        with pytest.raises(ValueError, match=words):
            average([first, *others])


def test_the_command_writes_a_checkpoint_and_never_over_anything(checkpoints, tmp_path):
    for number, checkpoint in enumerate(checkpoints[:2]):
        save_checkpoint(tmp_path / str(number), checkpoint)

    def run(*models: str) -> tuple[int, str]:
        arguments = [*(str(tmp_path / name) for name in models), "--out", str(tmp_path / "mean")]
        result = CliRunner().invoke(model.tools.average.app, arguments, env={"COLUMNS": "300", "TERM": "dumb"})
        return result.exit_code, result.output

    code, printed = run("0", "none")
    assert (code, "is no checkpoint" in printed) == (2, True)
    assert run("0", "1")[0] == 0
    found = load_checkpoint(tmp_path / "mean")
    assert torch.equal(found.weights["embedding.weight"], average(checkpoints[:2]).weights["embedding.weight"])
    code, printed = run("0", "1")
    assert (code, "exists already" in printed) == (2, True)
