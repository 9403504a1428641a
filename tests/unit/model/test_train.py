"""A whole small run: it learns, a killed run resumes to the very same weights, checkpoints average."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import model.evaluate
import model.train
from model.bundle import default_bundle_dir
from model.checkpoint import load_checkpoint, mean_weights, save_checkpoint, step_directories
from model.config import ModelConfig
from model.data import Pair
from model.evaluate import mean_nll, score_translations, translate, translate_greedily
from model.tokenizer import Tokenizer
from model.transformer import Transformer
from tests.conftest import ENGLISH, GERMAN
from tests.fakes.tiny_run import data, trainer

__all__ = ["data"]


@pytest.fixture(scope="module")
def whole_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    trainer(data, run).train()
    return run


def test_loss_falls(whole_run, data):
    points = trainer(data, whole_run).curve.points()

    assert [point["update"] for point in points] == [10, 20, 30]
    assert points[2]["dev_loss"] < 0.9 * points[0]["dev_loss"]


def test_the_run_leaves_a_curve_and_an_average(whole_run):
    assert (whole_run / "curve.png").read_bytes().startswith(b"\x89PNG")
    average = load_checkpoint(whole_run / "average")
    assert average.meta.update == 30
    assert average.meta.target_language == "de"


def test_average_is_the_mean_of_the_last_checkpoints(whole_run):
    last_two = [load_file(path / "model.safetensors") for path in step_directories(whole_run)[-2:]]

    average = load_checkpoint(whole_run / "average").weights

    for name, tensor in average.items():
        assert torch.allclose(tensor, (last_two[0][name] + last_two[1][name]) / 2, atol=1e-6)


@pytest.mark.parametrize("matrices", ["adam", "muon"])
def test_a_killed_run_resumes_to_the_same_weights(data, tmp_path, monkeypatch, matrices):
    trainer(data, tmp_path / "whole", matrices=matrices).train()
    killed = trainer(data, tmp_path / "run", matrices=matrices)
    updates = itertools.count(1)
    update = killed._update

    def update_until_killed(batches):
        if next(updates) == 17:
            raise KeyboardInterrupt
        return update(batches)

    monkeypatch.setattr(killed, "_update", update_until_killed)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = trainer(data, tmp_path / "run", matrices=matrices)
    resumed.resume()
    assert resumed.progress.update == 10
    resumed.train()

    expected = load_checkpoint(step_directories(tmp_path / "whole")[-1]).weights
    found = load_checkpoint(step_directories(tmp_path / "run")[-1]).weights
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [point["update"] for point in resumed.curve.points()] == [10, 20, 30]


def test_bf16_learns_too(data, tmp_path):
    run = trainer(data, tmp_path / "run", torch.bfloat16)
    run.train()

    points = run.curve.points()
    assert points[-1]["dev_loss"] < 0.9 * points[0]["dev_loss"]


def test_old_checkpoints_are_removed(whole_run):
    assert len(step_directories(whole_run)) == 3


def test_a_half_written_checkpoint_is_not_seen(whole_run, tmp_path):
    checkpoint = load_checkpoint(whole_run / "average")
    (tmp_path / ".step-00000002.partial").mkdir()
    save_checkpoint(tmp_path / "step-00000001", checkpoint)
    (tmp_path / "step-00000003").mkdir()

    assert [path.name for path in step_directories(tmp_path)] == ["step-00000001"]


def test_missing_part_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no checkpoint: model\.safetensors is missing"):
        load_checkpoint(tmp_path)


def test_averaging_nothing_is_refused():
    with pytest.raises(ValueError, match="no checkpoints to average"):
        mean_weights([])


def test_nll_of_an_untrained_model_is_near_log_of_the_vocabulary(data, tmp_path):
    fresh = trainer(data, tmp_path / "run")

    assert mean_nll(fresh.model.eval(), fresh.dev_pairs, fresh.tokenizer) == pytest.approx(4.8, abs=0.8)


def test_translations_keep_the_order_of_the_texts(whole_run):
    checkpoint = load_checkpoint(whole_run / "average")
    model, tokenizer = checkpoint.model(), checkpoint.tokenizer()
    texts = [*ENGLISH, "", *ENGLISH[:3]]

    translations = translate_greedily(model, texts, tokenizer)

    assert translations[10] == ""
    assert translations[11:] == translations[:3]
    assert translations[:10] == [translate_greedily(model, [text], tokenizer)[0] for text in ENGLISH]


def small_model(max_positions: int) -> Transformer:
    shape = ModelConfig(vocab_size=120, d_model=16, d_ff=16, num_heads=2, max_positions=max_positions)
    return Transformer(shape).initialize(1).eval()


@pytest.mark.parametrize("beam_size", [1, 2])
def test_texts_and_translations_end_where_the_model_has_no_more_positions(tiny_tokenizer_path, beam_size):
    untrained, tokenizer = small_model(max_positions=12), Tokenizer.load(tiny_tokenizer_path)
    texts = ["A red", " ".join(ENGLISH[:2])]
    assert 2 * len(tokenizer.encode(texts[0])) + 10 > 12
    assert len(tokenizer.encode(texts[1])) > 12

    assert all(translate(untrained, texts, tokenizer, beam_size))


def test_loss_leaves_out_pairs_that_the_model_has_no_positions_for(tiny_tokenizer_path):
    untrained, tokenizer = small_model(max_positions=12), Tokenizer.load(tiny_tokenizer_path)
    short, long = Pair("A red", "Ein roter"), Pair(ENGLISH[0] * 2, GERMAN[0] * 2)

    assert mean_nll(untrained, [short, long], tokenizer) == mean_nll(untrained, [short], tokenizer)


@pytest.mark.parametrize("pair", [Pair(" ".join(ENGLISH), " ".join(GERMAN)), Pair("A red", GERMAN[0])])
def test_loss_is_of_long_pairs_and_unequal_ones_too(tiny_tokenizer_path, pair):
    untrained, tokenizer = small_model(max_positions=512), Tokenizer.load(tiny_tokenizer_path)
    lengths = sorted(len(tokenizer.encode(side)) for side in pair)
    assert lengths[1] > 128 or lengths[1] > 2.5 * lengths[0] + 4

    assert mean_nll(untrained, [pair], tokenizer) > 0


def test_command_refuses_to_overwrite_a_run(whole_run, data):
    result = CliRunner().invoke(
        model.train.app, [str(data / "recipe.toml"), "--data", str(data), "--out", str(whole_run)]
    )

    assert result.exit_code == 2
    assert "holds a run already" in result.output


def test_evaluate_prints_bleu_and_chrf_with_signatures(whole_run, data):
    result = CliRunner().invoke(model.evaluate.app, [str(whole_run / "average"), "--data", str(data), "--set", "own"])

    assert result.exit_code == 0, result.output
    assert "nrefs:1|case:mixed" in result.output
    assert "own" in result.output


def test_bleu_is_of_the_tokenisation_asked_for(caplog):
    translations, references = ["it 's <b> here ."] * 100, ["it 's < b> here ."] * 100

    usual = score_translations(translations, references)
    assert "tok:13a" in usual.bleu_signature
    assert usual.bleu == pytest.approx(100)
    caplog.clear()  # sacrebleu warns of tokenised text where it is not expected
    tokenised = score_translations(translations, references, "none")

    assert "tok:none" in tokenised.bleu_signature
    assert tokenised.bleu < 100
    assert not caplog.records


def test_evaluate_scores_tokenised_text_when_told(whole_run, data):
    arguments = [str(whole_run / "average"), "--data", str(data), "--set", "dev/own", "--bleu-tokenizer", "none"]

    result = CliRunner().invoke(model.evaluate.app, arguments)

    assert result.exit_code == 0, result.output
    assert "tok:none" in result.output
    assert "dev/own" in result.output


def test_validation_scores_with_the_recipes_tokeniser(data, tmp_path, monkeypatch):
    seen = []

    def score(translations, references, bleu_tokenizer):
        seen.append(bleu_tokenizer)
        return score_translations(translations, references, bleu_tokenizer)

    monkeypatch.setattr(model.train, "score_translations", score)
    run = trainer(data, tmp_path / "run")
    run.recipe = replace(run.recipe, schedule=replace(run.recipe.schedule, max_updates=1, bleu_tokenizer="none"))
    run.train()

    assert seen == ["none"]


def test_command_names_what_is_missing(data, tmp_path):
    arguments = [str(data / "recipe.toml"), "--data", str(tmp_path), "--out", str(tmp_path / "run")]

    result = CliRunner().invoke(model.train.app, arguments)

    assert result.exit_code == 2
    assert "own.en.gz does not exist; expected DATA/train/NAME/NAME.LANG.gz" in " ".join(result.output.split())


def test_a_run_can_start_from_given_weights_and_their_tokenizer(whole_run, data, tmp_path):
    initial = load_checkpoint(whole_run / "average")

    started = trainer(data, tmp_path / "run", initial=initial)

    assert all(torch.equal(tensor, initial.weights[name]) for name, tensor in started.model.state_dict().items())
    assert (tmp_path / "run" / "shared.spm").read_bytes() == initial.tokenizer_path.read_bytes()


def test_weights_of_another_shape_are_refused(whole_run, data, tmp_path):
    initial = load_checkpoint(whole_run / "average")
    other = replace(initial, config=replace(initial.config, num_encoder_layers=2))

    with pytest.raises(ValueError, match="the recipe asks for"):
        trainer(data, tmp_path / "run", initial=other)


def test_a_bundles_kept_weights_are_a_checkpoint():
    embedded = load_checkpoint(default_bundle_dir())

    assert embedded.meta.target_language == "de"
    assert embedded.weights["embedding.weight"].dtype == torch.float32
    assert translate_greedily(embedded.model(), ["How are you today?"], embedded.tokenizer())[0].startswith("Wie")
