"""The drawn weights are the ones that the model uses, and the picture has a panel for each head."""

import pytest
import torch
from typer.testing import CliRunner

from model.config import EOS_ID, NormPlacement
from model.layers import MultiHeadAttention
from model.tokenizer import Tokenizer
from model.tools.attention import (
    MAX_TOKENS,
    AttentionMap,
    AttentionPart,
    app,
    attention_maps,
    attention_weights,
    draw,
)
from model.transformer import Transformer
from tests.conftest import ENGLISH
from tests.fakes.tiny_model import tiny_config, tiny_model, write_tiny_checkpoint

SOURCE = [5, 6, 7, 8, EOS_ID]
TARGET = [9, 10, 11]


@pytest.fixture(params=list(NormPlacement))
def model(request: pytest.FixtureRequest) -> Transformer:
    return tiny_model(tiny_config(request.param))


def test_a_decoder_step_looks_at_no_later_one(model):
    decoder = attention_weights(model, SOURCE, TARGET)[AttentionPart.DECODER]

    assert decoder.shape == (2, 4, 4, 4)
    assert decoder.triu(1).abs().max() == 0
    assert (decoder[:, :, -1] > 0).all()


@pytest.mark.parametrize("part", AttentionPart)
@torch.inference_mode()
def test_weights_reproduce_what_the_layer_gave(model, part):
    layers = (model.encoder if part is AttentionPart.ENCODER else model.decoder).layers
    attentions = [layer.cross_attention if part is AttentionPart.CROSS else layer.self_attention for layer in layers]
    seen: dict[MultiHeadAttention, tuple[torch.Tensor, torch.Tensor]] = {}
    for attention in attentions:
        attention.register_forward_hook(lambda module, inputs, output: seen.update({module: (inputs[1], output)}))

    weights = attention_weights(model, SOURCE, TARGET)[part]

    for of_layer, attention in zip(weights, attentions, strict=True):
        memory, output = seen[attention]
        values = attention.value(memory[0]).view(memory.size(1), 4, 8)  # [M, H, d]
        mixed = torch.einsum("hqm,mhd->qhd", of_layer, values).flatten(1)
        assert torch.allclose(attention.output(mixed), output[0], atol=1e-5)


def test_rows_are_named_after_what_a_step_writes_and_columns_after_what_it_sees(tiny_tokenizer_path):
    tokenizer = Tokenizer.load(tiny_tokenizer_path)
    source, target = tokenizer.encode(ENGLISH[0]), tokenizer.encode(ENGLISH[1])[:-1]
    maps = attention_maps(tiny_model(tiny_config(vocab_size=120)), tokenizer, source, target)

    assert maps[AttentionPart.ENCODER].queries == maps[AttentionPart.ENCODER].memory == maps[AttentionPart.CROSS].memory
    assert maps[AttentionPart.CROSS].queries == maps[AttentionPart.DECODER].queries
    assert maps[AttentionPart.CROSS].queries[-1] == maps[AttentionPart.CROSS].memory[-1] == "</s>"
    assert maps[AttentionPart.DECODER].memory == ["<s>", *maps[AttentionPart.DECODER].queries[:-1]]


def test_a_picture_has_a_panel_for_each_layer_and_head():
    maps = {part: AttentionMap(torch.eye(3).expand(2, 5, 3, 3), list("abc"), list("def")) for part in AttentionPart}

    panels = [axes for section in draw(maps, "all").subfigs for axes in section.axes]
    one = draw({AttentionPart.CROSS: maps[AttentionPart.CROSS]}, "one", layer=1).subfigs[0].axes

    assert len(panels) == 3 * 2 * 5
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["a", "b", "c"]
    assert [axes.get_title() for axes in one] == [f"layer 2, head {head}" for head in range(1, 6)]


def test_the_command_writes_a_png_and_refuses_what_it_cannot_draw(tmp_path):
    checkpoint, output = write_tiny_checkpoint(tmp_path / "run"), tmp_path / "attention.png"

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*arguments, "--output", str(output)], env={"COLUMNS": "200"})
        return result.exit_code, result.output

    code, said = run(str(checkpoint), "The dog $plays_$.", "--part", "cross", "--layer", "2", "--beam-size", "1")

    assert code == 0, said
    assert output.read_bytes().startswith(b"\x89PNG")
    for arguments, reason in (
        ((str(checkpoint), " "), "sentence has 0 tokens"),
        ((str(checkpoint), "dog " * 99), f"1 to {MAX_TOKENS} can be drawn"),
        ((str(checkpoint), "dog", "--part", "cross", "--layer", "3"), "--layer is 3, the part cross has 2"),
        ((str(checkpoint), "dog", "--layer", "1"), "--layer 1 needs --part"),
        ((str(tmp_path), "dog"), "is no checkpoint"),
    ):
        code, said = run(*arguments)
        assert code == 2
        assert reason in said
