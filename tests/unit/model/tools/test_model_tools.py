"""Tools around training: the mean of models, attention as a picture, what a teacher says, which pairs stay."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import model.tools.average
import model.tools.distil
from model.checkpoint import Checkpoint, CheckpointMeta, load_checkpoint, save_checkpoint
from model.config import ModelConfig, NormPlacement
from model.corpus import Pair, read_corpus
from model.recipe import CorpusConfig, Languages
from model.search import greedy_search
from model.tools.attention import MAX_TOKENS, app
from model.tools.average import average
from model.tools.distil import quick_greedy_search
from model.tools.filter_corpus import (
    is_plausible,
    plausible_pairs,
)
from model.transformer import Transformer
from tests.conftest import ENGLISH
from tests.fakes.tiny_model import tiny_config, write_tiny_checkpoint
from tests.fakes.tiny_run import data

__all__ = ["data"]

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


EN_DE = Languages(source="en", target="de")


@pytest.mark.parametrize(
    ("source", "target", "stays"),
    [
        ("Hello {name}.", "Hallo {name}.", True),
        ("Hello {name}.", "Hallo {nom}.", False),
        ("Press <b>OK</b>.", "<b>OK</b> drücken.", True),
        ("Press <b>OK</b>.", "OK drücken.", False),
        ("See https://a.example/b.", "Siehe https://a.example/b.", True),
        ("123", "123", False),
        ("This was never translated at all.", "This was never translated at all.", False),
        ("Yes.", "Das ist ein sehr langer Satz, der mehr sagt als das Original.", False),
    ],
)
def test_the_rules_of_a_pair(source, target, stays):
    assert is_plausible(Pair(source, target)) is stays


def test_text_in_a_third_language_is_left_out_and_spelling_is_of_today():
    french = Pair(
        "The weather is very nice today, let us go out into the garden.",
        "Il fait très beau aujourd'hui, allons dans le jardin avec les enfants.",
    )
    german = Pair("I know that she is coming to the party tonight.", "Ich weiß, daß sie heute Abend zum Fest kommt.")

    assert plausible_pairs([french, german], EN_DE) == [german._replace(target=german.target.replace("daß", "dass"))]
